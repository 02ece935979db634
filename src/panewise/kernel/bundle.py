"""Several Arrow tables and some facts as one run of bytes: how pages travel and how state is kept. No pickle."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Union

import numpy as np
import pyarrow as pa

from panewise.kernel.page import Array

__all__ = ["Buffer", "Facts", "as_arrays", "as_table", "dump", "load"]

Facts = dict[str, Any]
Buffer = Union[bytes, pa.Buffer]
_LENGTH = struct.Struct("<I")
# one thread each: what is small gains nothing by more, and Spark has a task for every core
_PLAIN = pa.ipc.IpcWriteOptions(use_threads=False)
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


def dump(tables: Mapping[str, pa.Table | pa.RecordBatch], facts: Mapping[str, Any], compressed: bool = False) -> bytes:
    """Facts as JSON, then each table as an Arrow stream."""
    options = _COMPRESSED if compressed else _PLAIN
    streams = []
    for table in tables.values():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write(table)
        streams.append(sink.getvalue())
    sizes = [[name, stream.size] for name, stream in zip(tables, streams, strict=True)]
    head = json.dumps({"facts": dict(facts), "tables": sizes}).encode()
    return b"".join([_LENGTH.pack(len(head)), head, *streams])


def load(data: Buffer) -> tuple[dict[str, pa.Table], Facts]:
    """The inverse of `dump`; the tables share the bytes."""
    (length,) = _LENGTH.unpack_from(data)
    place = _LENGTH.size + length
    whole = pa.py_buffer(data)
    head = json.loads(bytes(whole.slice(_LENGTH.size, length)))
    tables = {}
    for name, size in head["tables"]:
        with pa.ipc.open_stream(whole.slice(place, size), options=_READ) as reader:
            tables[name] = reader.read_all()
        place += size
    return tables, head["facts"]


def as_table(arrays: Mapping[str, Array]) -> pa.Table:
    """Numpy arrays of any shapes as a table of one row: a list each, with its shape beside it."""
    fields, columns = [], []
    for name, array in arrays.items():
        values = pa.array(np.ascontiguousarray(array).reshape(-1))
        column = pa.LargeListArray.from_arrays(pa.array([0, array.size], pa.int64()), values)
        fields.append(pa.field(name, column.type, metadata={"shape": json.dumps(array.shape)}))
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def as_arrays(table: pa.Table) -> dict[str, Array]:
    """The inverse of `as_table`; what comes out may be written to."""
    found = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        shape = json.loads(field.metadata[b"shape"])
        found[field.name] = np.array(column.chunk(0).values.to_numpy(zero_copy_only=False)).reshape(shape)
    return found
