"""Spark's types on Arrow arrays: which types meet in which, and casts that mean what Spark's mean (ANSI)."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import DataError
from panewise.kernel.compiled import compiled
from panewise.kernel.page import in_one, numbers

__all__ = [
    "Unsupported",
    "cast",
    "decimal_shape",
    "is_number",
    "is_tidy",
    "spark_array",
    "wider",
    "without_nan",
    "zone_of",
]

_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
_UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
_NAMES = {pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint", pa.bool_(): "boolean"}
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_FRACTION = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)[df]?|[+-]?(?:inf|infinity)|nan", re.IGNORECASE
)
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?:[ T]([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{1,9}))?\s*(\S+)?)?"
)
_OFFSET = re.compile(r"([+-])([0-9]{1,2}):([0-9]{2})")
_MINUS_ZERO: dict[Any, Any] = {
    pa.float32(): np.int32(np.iinfo(np.int32).min),
    pa.float64(): np.int64(np.iinfo(np.int64).min),
}
"""The bits of -0.0."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Unsupported(Exception):  # noqa: N818  # `evaluate` turns it into an InputError
    """Something that only Spark can evaluate."""


def is_number(type: Any) -> bool:
    """Integers, floats and decimals."""
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))


def decimal_shape(type: Any) -> tuple[int, int]:
    """Precision and scale of a number that is not a float, as Spark sees it."""
    return (_DIGITS[type], 0) if type in _DIGITS else (type.precision, type.scale)


def spark_array(column: Any) -> Any:
    """A column as Spark would hold it: signed, in microseconds, decoded; NaN is null."""
    array = in_one(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if kind in _UNSIGNED:
        return array.cast(_UNSIGNED[kind])
    if kind == pa.uint64():
        return array.cast(pa.decimal128(20, 0))
    if kind == pa.float16():
        array = array.cast(pa.float32())
    if pa.types.is_floating(kind):
        return without_nan(array)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return array.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("us", kind.tz), safe=False)
    if pa.types.is_duration(kind):
        return array.cast(pa.duration("us"), safe=False)
    if pa.types.is_date(kind):
        return array.cast(pa.date32())
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return array.cast(pa.decimal128(kind.precision, kind.scale))
    return array


def is_tidy(array: Any) -> bool:
    """Whether no real number of an array is NaN or -0.0; most columns are like that, and need no copy."""
    if array.type not in _MINUS_ZERO:
        return False
    minus_zero = _MINUS_ZERO[array.type]
    # a null has a value too: most likely 0
    values = numbers(array)
    return not _untidy(values, values.view(minus_zero.dtype), minus_zero)


@compiled
def _untidy(values: Any, bits: Any, minus_zero: Any) -> Any:
    count = 0
    for i in range(len(values)):
        count += (values[i] != values[i]) | (bits[i] == minus_zero)
    return count


def without_nan(array: Any) -> Any:
    """Real numbers with null for NaN."""
    if is_tidy(array):
        return array
    nan = pc.is_nan(array)
    return pc.if_else(nan, pa.scalar(None, array.type), array) if pc.any(nan).as_py() else array


def wider(a: Any, b: Any) -> Any:
    """The type in which two types meet, as in Spark's ANSI mode."""
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if pa.types.is_integer(a) and pa.types.is_integer(b):
        return a if a.bit_width > b.bit_width else b
    if is_number(a) and is_number(b):
        if pa.types.is_floating(a) or pa.types.is_floating(b):
            return pa.float64()
        (p, s), (q, t) = decimal_shape(a), decimal_shape(b)
        scale = max(s, t)
        precision = max(p - s, q - t) + scale
        if precision <= 38:
            return pa.decimal128(precision, scale)
    for text, other in ((a, b), (b, a)):
        if pa.types.is_string(text):
            if pa.types.is_integer(other):
                return pa.int64()
            if is_number(other):
                return pa.float64()
            if pa.types.is_boolean(other) or pa.types.is_date(other) or pa.types.is_timestamp(other):
                return other
        if pa.types.is_date(text) and pa.types.is_timestamp(other):
            return other
    raise Unsupported(f"{a} together with {b}")


def cast(array: Any, target: Any, strict: bool = True) -> Any:
    """Spark's cast; a value that does not fit is an error, or null where not `strict` (try_cast)."""
    source = array.type
    if source == target:
        return array
    if pa.types.is_null(source):
        return pa.nulls(len(array), target)
    if pa.types.is_string(source):
        return _from_text(array, target, strict)
    if pa.types.is_boolean(source) and is_number(target) and not pa.types.is_decimal(target):
        return array.cast(pa.int8()).cast(target)
    if pa.types.is_timestamp(source) and is_number(target) and not pa.types.is_decimal(target):
        micros = array.cast(pa.int64())
        if pa.types.is_floating(target):
            return pc.divide(micros.cast(pa.float64(), safe=False), 1e6).cast(target, safe=False)
        return cast(pa.array(_numpy(micros, 0) // 1_000_000, mask=_nulls(array)), target, strict)
    if is_number(source):
        if pa.types.is_floating(target):
            return (_exact(array) if pa.types.is_decimal(source) else array).cast(target, safe=False)
        if pa.types.is_integer(target):
            return _to_integer(array, target, strict)
        if pa.types.is_decimal(target) and not pa.types.is_floating(source):
            return array.cast(target)
        if pa.types.is_boolean(target):
            return pc.not_equal(array, pa.scalar(0, source))
    if pa.types.is_string(target) and (pa.types.is_integer(source) or pa.types.is_boolean(source)):
        return array.cast(target)
    if pa.types.is_date(source) and pa.types.is_timestamp(target):
        midnight = array.cast(pa.timestamp("us"))
        zone = target.tz
        return (
            midnight if zone is None else pc.assume_timezone(midnight, zone, nonexistent="latest", ambiguous="earliest")
        )
    if pa.types.is_timestamp(source) and pa.types.is_date(target):
        local = array if source.tz is None else pc.local_timestamp(array)
        return pc.floor_temporal(local, unit="day").cast(target)
    raise Unsupported(f"a cast from {source} to {target}")


def _exact(array: Any) -> Any:
    # Arrow's own cast is off by a bit now and then; most decimal arrays are one literal, so each value is read once
    encoded = array.dictionary_encode()
    return encoded.dictionary.cast(pa.string()).cast(pa.float64()).take(encoded.indices)


def _nulls(array: Any) -> Any:
    return np.asarray(array.is_null())


def _numpy(array: Any, fill: int) -> Any:
    return pc.fill_null(array, fill).to_numpy(zero_copy_only=False)


def _to_integer(array: Any, target: Any, strict: bool) -> Any:
    low, high = -(2 ** (target.bit_width - 1)), 2 ** (target.bit_width - 1) - 1
    missing = _nulls(array)
    if pa.types.is_integer(array.type):
        numbers: Any = _numpy(array, 0)
        bad = (numbers < low) | (numbers > high)
    elif pa.types.is_floating(array.type):
        # the bounds are exact in float64: -2^63 is one, and so is 2^63, the first number above
        numbers = np.trunc(_numpy(array, 0).astype(np.float64))
        bad = ~((numbers >= float(low)) & (numbers < float(high + 1)))
    else:
        whole = [0 if v is None else int(v) for v in array.to_pylist()]
        bad = np.array([not low <= v <= high for v in whole], dtype=bool)
        numbers = np.array([0 if b else v for v, b in zip(whole, bad, strict=True)], dtype=np.int64)
    if strict and bad.any():
        value = array[int(bad.argmax())].as_py()
        raise DataError(f"{value} is out of the range of {_NAMES[target]}. Use a wider type, or try_cast.")
    return pa.array(np.where(bad, 0, numbers).astype(target.to_pandas_dtype()), mask=missing | bad, type=target)


def _from_text(array: Any, target: Any, strict: bool) -> Any:
    values = []
    for text in array.to_pylist():
        value = None if text is None else _read(text.strip(), target)
        if text is not None and value is None and strict:
            name = _NAMES.get(target, "double" if is_number(target) else str(target).split("[")[0].rstrip("0123456789"))
            raise DataError(f"{text!r} can't be cast to {name}. Correct the value, or use try_cast.")
        values.append(value)
    return pa.array(values, type=target)


def _read(text: str, target: Any) -> object:
    """The value of a text in a type, or None."""
    if pa.types.is_integer(target):
        half = 2 ** (target.bit_width - 1)
        return int(text) if _WHOLE.fullmatch(text) and -half <= int(text) < half else None
    if pa.types.is_floating(target):
        number = _FRACTION.fullmatch(text)
        return float(number.group(1) or text) if number else None
    if pa.types.is_boolean(target):
        return text.lower() in _TRUE if text.lower() in _TRUE + _FALSE else None
    if pa.types.is_timestamp(target):
        return _read_time(text, target.tz)
    if pa.types.is_date(target):
        micros = _read_time(text, None)
        return None if micros is None else date(1970, 1, 1) + timedelta(days=micros // 86_400_000_000)
    raise Unsupported(f"a cast from text to {target}")


def _read_time(text: str, session_zone: str | None) -> int | None:
    """Microseconds since the epoch of `2024-01-31 12:00:00.5 +02:00`, or of a date; None if it is neither."""
    parts = _TIME.fullmatch(text)
    if parts is None:
        # Spark reads shorter forms too; which, is its own business
        if re.match(r"[0-9]{1,4}(-|$)|[0-9]{1,2}:", text):
            raise Unsupported(f"the time {text!r}; write it in full, such as '2024-01-31 12:00:00'")
        return None
    year, month, day, hour, minute, second = (int(p or 0) for p in parts.groups()[:6])
    micros = int((parts.group(7) or "").ljust(6, "0")[:6])
    zone = UTC if session_zone is None else zone_of(session_zone)
    if parts.group(8) is not None:
        if session_zone is None:
            raise Unsupported(f"the time {text!r}: it has a zone, and the table's times have none")
        zone = zone_of(parts.group(8))
    try:
        moment = datetime(year, month, day, hour, minute, second, micros, zone)
    except ValueError:
        return None
    return (moment - _EPOCH) // timedelta(microseconds=1)


def zone_of(name: str) -> Any:
    """A time zone by its name, or by how far it is from UTC."""
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign = -1 if offset.group(1) == "-" else 1
        return timezone(sign * timedelta(hours=int(offset.group(2)), minutes=int(offset.group(3))))
    try:
        return UTC if name in ("Z", "UTC", "GMT") else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise Unsupported(f"the time zone {name!r}") from None
