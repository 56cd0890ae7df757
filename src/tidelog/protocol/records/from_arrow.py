"""An Arrow batch as columns, for encode. Loaded late: pyarrow is an extra."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.kernel.ports import Buffer
from tidelog.protocol.batch import NO_TIMESTAMP
from tidelog.protocol.records.columns import Columns, TwinName
from tidelog.protocol.records.twins import chosen_twin, module

_INT64_BYTES: Final = 8


def from_arrow(batch: pa.RecordBatch, *, twin: TwinName | None = None) -> Columns:
    """The records of a batch with the columns value and, where there are, key, timestamp and headers, named and typed
    as in Spark's Kafka sink; strings are taken as UTF-8. Other columns are the caller's. Offsets count from 0."""
    name = twin or chosen_twin()
    loops = module("decode", name)
    count = batch.num_rows
    content = _Content(loops)
    value_start, value_size = content.place(batch.column("value"))
    key_start, key_size = content.place(_column(batch, "key", pa.nulls(count, pa.binary())))
    headers = _column(batch, "headers", None)
    pairs = pa.array([], pa.struct([("key", pa.string()), ("value", pa.binary())]))
    lengths: Any = [0] * count
    if headers is not None:
        pairs = headers.flatten()
        lengths = _whole(pc.fill_null(pc.list_value_length(headers), 0).cast(pa.int64()), 1, 0)
    names, contents = pairs.flatten()
    if names.null_count:
        raise ValueError("a record header has no name")
    header_key_start, header_key_size = content.place(names)
    header_value_start, header_value_size = content.place(contents)
    nothing = loops.column([0] * count)
    return Columns(
        twin=name,
        consumed=0,
        data=b"".join(content.parts),
        offset=loops.column(range(count)),
        timestamp=loops.column(_timestamps(_column(batch, "timestamp", None), count)),
        batch=nothing,
        start=nothing,
        end=nothing,
        key_start=key_start,
        key_size=key_size,
        value_start=value_start,
        value_size=value_size,
        header_first=loops.ends(lengths),
        header_key_start=header_key_start,
        header_key_size=header_key_size,
        header_value_start=header_value_start,
        header_value_size=header_value_size,
        batches=loops.scan(memoryview(b""))[1],
    )


def _column(batch: pa.RecordBatch, name: str, default: Any) -> Any:
    return batch.column(name) if name in batch.schema.names else default


def _timestamps(column: Any, count: int) -> Any:
    """In milliseconds; no column and no value is no timestamp."""
    if column is None:
        return [NO_TIMESTAMP] * count
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    return _whole(pc.fill_null(column.cast(pa.int64()), NO_TIMESTAMP), 1, 0)


def _whole(array: pa.Array, index: int, more: int) -> memoryview:
    """A buffer of 64-bit numbers of an array, from its first to `more` behind its last."""
    if not len(array):
        return memoryview(bytes(more * _INT64_BYTES)).cast("q")
    begin, end = array.offset * _INT64_BYTES, (array.offset + len(array) + more) * _INT64_BYTES
    return memoryview(array.buffers()[index])[begin:end].cast("q")


class _Content:
    """The bytes of several Arrow columns one behind the other."""

    def __init__(self, loops: Any) -> None:
        self._loops = loops
        self._size = 0
        self.parts: list[Buffer] = []

    def place(self, array: pa.Array) -> tuple[Any, Any]:
        """(starts, sizes) of the values, whose bytes are added."""
        wide = array.cast(pa.large_binary())
        wide.validate()
        ends = _whole(wide, 1, 1)
        begin, end = ends[0], ends[len(ends) - 1]
        shift = self._size - begin
        if end > begin:
            self.parts.append(memoryview(wide.buffers()[2])[begin:end])
            self._size += end - begin
        nulls = _whole(pc.indices_nonzero(wide.is_null()).cast(pa.int64()), 1, 0)
        starts, sizes = self._loops.places(ends, shift, nulls)
        return starts, sizes
