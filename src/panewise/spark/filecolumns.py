"""Which columns a Parquet file has, as Spark sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

__all__ = ["names_in", "unlike"]

_VERSION = b"org.apache.spark.version"
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def unlike(file: Any, schema: pa.Schema, said: Mapping[str, object]) -> str:
    """Why the columns of a file are not those that Spark says, but for those that its folders say."""
    times = any(pa.types.is_timestamp(field.type) or pa.types.is_date(field.type) for field in schema)
    if times and _is_legacy(file.metadata.metadata or {}):
        return "times may be in Spark's legacy calendar"
    for field in (field for field in schema if field.name not in said):
        names = names_in(file, field.name)
        if len(names) > 1:
            return f"the column {field.name!r} is there {len(names)} times"
        found = file.schema_arrow.field(names[0]).type if names else field.type
        if not (_holds(field.type, found) or _holds_time(field.type, found)):
            return f"the column {field.name!r} is {found} in the files"
    return ""


def names_in(file: Any, name: str) -> list[str]:
    """Under which names a file has a column: Spark cares for no case."""
    return [known for known in file.schema_arrow.names if known.lower() == name.lower()]


def _holds(wanted: pa.DataType, found: pa.DataType) -> bool:
    """Whether every value of a file's type is one of Spark's, as Spark reads it too.

    >>> _holds(pa.int64(), pa.int32()), _holds(pa.int32(), pa.int64()), _holds(pa.string(), pa.large_string())
    (True, False, True)
    >>> [_holds(pa.decimal128(10, 2), pa.decimal128(*found)) for found in ((5, 2), (9, 1), (10, 1), (5, 3))]
    [True, True, False, False]
    """
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_signed_integer(wanted) and pa.types.is_integer(found):
        return bool(found.bit_width + pa.types.is_unsigned_integer(found) <= wanted.bit_width)
    if pa.types.is_string(wanted):
        return found in (wanted, pa.large_string())
    if pa.types.is_binary(wanted):
        return found in (wanted, pa.large_binary())
    if pa.types.is_decimal(wanted) and pa.types.is_decimal(found):
        return bool(0 <= wanted.scale - found.scale <= wanted.precision - found.precision)
    if pa.types.is_float64(wanted) and pa.types.is_signed_integer(found):
        return bool(found.bit_width <= 32)
    return bool(found == wanted or (pa.types.is_float64(wanted) and pa.types.is_float32(found)))


def _holds_time(wanted: pa.DataType, found: pa.DataType) -> bool:
    if not (pa.types.is_timestamp(wanted) and pa.types.is_timestamp(found) and found.unit in ("us", "ms")):
        return False
    # an instant is one in any zone, whether or not the file says that it is one, as where it is stored as INT96
    return bool(wanted.tz or not found.tz)


def _is_legacy(metadata: dict[bytes, bytes]) -> bool:
    """Whether Spark may have written early days in another calendar: before 3.1, or later where it was told to."""
    version = metadata.get(_VERSION, b"9").split(b".")[:2]
    old = [int(part) if part.isdigit() else 0 for part in version] < [3, 1]
    return old or any(key in metadata for key in _LEGACY)
