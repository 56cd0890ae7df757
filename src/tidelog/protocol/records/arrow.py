"""Columns as an Arrow batch, in the names and types of Spark's Kafka source. Loaded late: pyarrow is an extra.

Integer columns are handed over as they are; keys, values and headers are gathered into one buffer each, because
Arrow's binary type wants its values one behind the other.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidelog.protocol.records.twins import module

if TYPE_CHECKING:
    from tidelog.protocol.records.columns import Columns

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMESTAMP: Final = pa.timestamp("ms", "UTC")
_REPEATED_MAX: Final = 1 << 16


def to_arrow(
    columns: Columns, *, topic: str | None, partition: int | None, headers: bool, control: bool, keep: Any
) -> pa.RecordBatch:
    """See Columns.to_arrow."""
    if keep is not None and len(keep) != columns.count:
        raise ValueError(f"keep has {len(keep)} entries for {columns.count} records")
    loops = module("arrow", columns.twin)
    rows = loops.chosen(columns, control, keep)
    count = columns.count if rows is None else len(rows)
    fields = {
        "key": loops.binary(columns.data, loops.take(columns.key_start, rows), loops.take(columns.key_size, rows)),
        "value": loops.binary(
            columns.data, loops.take(columns.value_start, rows), loops.take(columns.value_size, rows)
        ),
    }
    if topic is not None:
        fields["topic"] = _repeated(topic, pa.string(), count)
    if partition is not None:
        fields["partition"] = _repeated(partition, pa.int32(), count)
    fields["offset"] = _numbers(pa.int64(), loops.take(columns.offset, rows))
    fields["timestamp"] = _numbers(TIMESTAMP, loops.take(columns.timestamp, rows))
    fields["timestampType"] = _numbers(pa.int32(), loops.timestamp_types(columns, rows))
    if headers:
        fields["headers"] = _headers(columns, rows, count, loops)
    return pa.RecordBatch.from_arrays(list(fields.values()), names=list(fields))


def _repeated(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    """A reader of many small portions gets the same again and again."""
    if count > _REPEATED_MAX:
        return pa.repeat(pa.scalar(value, kind), count)
    return _kept(value, kind, 1 << (count - 1).bit_length() if count else 1).slice(0, count)


@lru_cache(maxsize=32)
def _kept(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _numbers(kind: pa.DataType, values: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _headers(columns: Columns, rows: Any, count: int, loops: Any) -> pa.Array:
    """A list per record; a record without headers has none (null), as in Spark's source."""
    ends, valid, picked = loops.headers(columns, rows)
    names = loops.binary(
        columns.data, loops.take(columns.header_key_start, picked), loops.take(columns.header_key_size, picked)
    )
    contents = loops.binary(
        columns.data, loops.take(columns.header_value_start, picked), loops.take(columns.header_value_size, picked)
    )
    pairs = pa.StructArray.from_arrays([_text(names), contents], ["key", "value"])
    return pa.Array.from_buffers(HEADERS, count, [valid, pa.py_buffer(ends)], children=[pairs])


def _text(names: pa.Array) -> pa.Array:
    """As strings. A name that is not UTF-8 gets replacement characters, as Java's consumer gives it: a reader must not
    stop at a record that a careless producer has written."""
    text = pa.Array.from_buffers(pa.string(), len(names), names.buffers())
    content = names.buffers()[2]
    if content is None or content.to_pybytes().isascii():
        return text
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
    return text
