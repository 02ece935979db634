"""Spark's operators on Arrow arrays (ANSI): arithmetic that fails rather than wraps, comparisons that know NaN."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import suppress
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import DataError
from panewise.kernel.sqltypes import Unsupported, cast, decimal_shape, is_number, wider

__all__ = ["absolute", "arithmetic", "compare", "extreme", "negate", "null_safe_equal", "rounded", "whole"]

_DAY = 86_400_000_000
_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_PLAIN = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide}
_EXACT: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}
_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_OVERFLOW = "an integer overflow. Cast to a wider type, such as bigint or double."


def compare(op: str, a: Any, b: Any) -> Any:
    """=, <>, <, <=, > or >=, null where either side is; NaN equals itself and is above all numbers."""
    kind = wider(a.type, b.type)
    if pa.types.is_null(kind):
        return pa.nulls(len(a), pa.bool_())
    a, b = cast(a, kind), cast(b, kind)
    result = _COMPARE[op](a, b)
    if not pa.types.is_floating(kind):
        return result
    nan_a, nan_b = pc.is_nan(a), pc.is_nan(b)
    if not (pc.any(nan_a).as_py() or pc.any(nan_b).as_py()):
        return result
    return pc.if_else(pc.or_(nan_a, nan_b), _COMPARE[op](nan_a.cast(pa.int8()), nan_b.cast(pa.int8())), result)


def null_safe_equal(a: Any, b: Any) -> Any:
    """<=>: two nulls are equal, and one is not."""
    both = pc.and_(pc.is_null(a), pc.is_null(b))
    return pc.or_(both, pc.fill_null(compare("=", a, b), False))


def extreme(op: str, arrays: list[Any]) -> Any:
    """`least` (`<`) or `greatest` (`>`); nulls are skipped."""
    kind = arrays[0].type
    for array in arrays[1:]:
        kind = wider(kind, array.type)
    result, *others = (cast(array, kind) for array in arrays)
    for other in others:
        better = pc.or_kleene(pc.is_null(result), compare(op, other, result))
        result = pc.if_else(pc.fill_null(better, False), other, result)
    return result


def arithmetic(
    op: str, a: Any, b: Any, digits: tuple[int | None, int | None] = (None, None), strict: bool = True
) -> Any:
    """+, -, *, / or %; `digits` are those of integer literals, `strict=False` is try_divide.

    `/` is a double (decimals apart), `%` has the sign of the dividend, and both refuse a zero divisor.
    """
    if _is_temporal(a.type) or _is_temporal(b.type):
        return _temporal(op, a, b)
    for kind in (a.type, b.type):
        if not (is_number(kind) or pa.types.is_string(kind) or pa.types.is_null(kind)):
            raise Unsupported(f"{kind} in arithmetic")
    kind = wider(a.type, b.type)
    if not is_number(kind):
        raise Unsupported(f"{a.type} {op} {b.type}")
    if pa.types.is_decimal(kind):
        a, b = (cast(v, kind) if pa.types.is_null(v.type) else v for v in (a, b))
        return _decimal(op, a, b, digits, strict)
    if op == "/":
        kind = pa.float64()
    a, b = cast(a, kind), cast(b, kind)
    if op in "/%":
        b = _divisor(a, b, strict)
    if op == "%":
        missing = np.asarray(pc.or_(a.is_null(), b.is_null()))
        x, y = (pc.fill_null(v, 1).to_numpy(zero_copy_only=False) for v in (a, b))
        with np.errstate(invalid="ignore"):
            return pa.array(np.fmod(x, y), type=kind, mask=missing)
    if pa.types.is_floating(kind):
        return _PLAIN[op](a, b)
    try:
        return _CHECKED[op](a, b)
    except pa.ArrowInvalid:
        raise DataError(_OVERFLOW) from None


def _divisor(a: Any, b: Any, strict: bool) -> Any:
    """The divisor, with null for the zeros that nothing is divided by."""
    zero = pc.equal(b, pa.scalar(0, b.type))
    if strict and pc.any(pc.and_(zero, a.is_valid())).as_py():
        raise DataError("a division by zero. Use try_divide(a, b), or nullif(b, 0) for the divisor.")
    return pc.if_else(pc.fill_null(zero, False), pa.scalar(None, b.type), b)


def _decimal(op: str, a: Any, b: Any, digits: tuple[int | None, int | None], strict: bool) -> Any:
    (p, s), (q, t) = (
        (count, 0) if count is not None else decimal_shape(array.type)
        for array, count in zip((a, b), digits, strict=True)
    )
    if op == "/":
        scale = max(6, s + q + 1)
        precision = p - s + t + scale
    elif op == "*":
        precision, scale = p + q + 1, s + t
    elif op == "%":
        scale = max(s, t)
        precision = min(p - s, q - t) + scale
    else:
        scale = max(s, t)
        precision = max(p - s, q - t) + scale + 1
    if precision > 38:
        precision, scale = 38, max(38 - (precision - scale), min(scale, 6))
    kind = pa.decimal128(precision, scale)
    if op in "/%":
        b = _divisor(a, b, strict)
    else:
        with suppress(pa.ArrowInvalid):  # more than 38 digits on the way
            return _PLAIN[op](*(v.cast(pa.decimal128(*decimal_shape(v.type))) for v in (a, b))).cast(kind)
    step = Decimal(1).scaleb(-scale)
    results: list[Decimal | None] = []
    with localcontext(prec=120):
        for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True):
            if x is None or y is None:
                results.append(None)
                continue
            result = _EXACT[op](Decimal(x), Decimal(y)).quantize(step, ROUND_HALF_UP)
            if abs(result) >= Decimal(10) ** (precision - scale):
                raise DataError(f"{result} is out of the range of decimal({precision},{scale}). Cast to double.")
            results.append(result)
    return pa.array(results, type=kind)


def _is_temporal(kind: Any) -> bool:
    return bool(pa.types.is_temporal(kind))


def _temporal(op: str, a: Any, b: Any) -> Any:
    match op:
        case "+" if pa.types.is_duration(a.type) and pa.types.is_timestamp(b.type):
            return _temporal(op, b, a)
        case "+" | "-" if pa.types.is_timestamp(a.type) and pa.types.is_duration(b.type):
            # Spark adds whole days by the calendar of the zone, which Arrow does not
            span = pc.max(pc.abs(b.cast(pa.int64()))).as_py() or 0
            if a.type.tz not in (None, "UTC") and span >= _DAY:
                raise Unsupported(f"days added in the zone {a.type.tz}")
            return _CHECKED[op](a, b)
        case "-" if pa.types.is_timestamp(a.type) and pa.types.is_timestamp(b.type):
            kind = wider(a.type, b.type)
            if kind.tz is not None:
                a, b = pc.local_timestamp(a), pc.local_timestamp(b)
            return pc.subtract_checked(a, b)
        case "+" | "-" if pa.types.is_duration(a.type) and pa.types.is_duration(b.type):
            return _CHECKED[op](a, b)
    raise Unsupported(f"{a.type} {op} {b.type}")


def _number(array: Any) -> Any:
    if pa.types.is_string(array.type) or pa.types.is_null(array.type):
        return cast(array, pa.float64())
    if not is_number(array.type):
        raise Unsupported(f"{array.type} as a number")
    return array


def negate(array: Any) -> Any:
    """Unary minus."""
    return _unary(pc.negate_checked, array)


def absolute(array: Any) -> Any:
    """The size without the sign."""
    return _unary(pc.abs_checked, array)


def _unary(function: Callable[[Any], Any], array: Any) -> Any:
    try:
        return function(_number(array))
    except pa.ArrowInvalid:
        raise DataError(_OVERFLOW) from None


def whole(name: str, array: Any) -> Any:
    """`ceil` or `floor`: a bigint, or a decimal without fraction."""
    array = _number(array)
    if pa.types.is_integer(array.type):
        return array.cast(pa.int64())
    function = {"ceil": pc.ceil, "floor": pc.floor}[name]
    if pa.types.is_decimal(array.type):
        p, s = decimal_shape(array.type)
        room = pa.decimal128(min(38, p + 1), s)
        return function(array.cast(room)).cast(pa.decimal128(min(38, p - s + 1), 0))
    numbers = function(array.cast(pa.float64()))
    missing = np.asarray(numbers.is_null())
    values = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    if (values >= 2.0**63).any() or (values < -(2.0**63)).any():
        raise DataError(_OVERFLOW)
    # like Java's toLong: NaN becomes 0
    return pa.array(np.where(np.isnan(values), 0, values).astype(np.int64), mask=missing)


def rounded(array: Any, places: int) -> Any:
    """`round`: half away from zero, on the shortest decimal text of a number."""
    array = _number(array)
    if pa.types.is_integer(array.type) and places >= 0:
        return array
    if not pa.types.is_floating(array.type):
        raise Unsupported(f"round of {array.type}")
    step = Decimal(1).scaleb(-places)
    with localcontext(prec=400):
        values = [
            v if v is None or not np.isfinite(v) else float(Decimal(repr(v)).quantize(step, ROUND_HALF_UP)) + 0.0
            for v in array.to_pylist()
        ]
    return pa.array(values, type=array.type)
