"""Columns as Arrow: the same records, in the names and types of Spark's Kafka source, from both twins."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.protocol.records.batches import built_batches, expected, with_crc
from tidelog.protocol.batch import CONTROL, TRANSACTIONAL, RecordInput, build_batch, read_header, set_append_time
from tidelog.protocol.records import TwinName, decode

settled = settings(max_examples=60)


def rows_of(log: bytes) -> list[dict[str, Any]]:
    """What Arrow should show of one batch, from the decoder of the control plane."""
    stamped = int(read_header(log).is_append_time)
    return [
        {
            "key": record.key,
            "value": record.value,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestampType": stamped,
            "headers": [{"key": name, "value": content} for name, content in record.headers] or None,
        }
        for record in expected(log)
    ]


def shown(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    batch.validate(full=True)
    at = batch.schema.get_field_index("timestamp")
    plain = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))
    return plain.to_pylist()


@settled
@given(batches=st.lists(built_batches, max_size=3))
def test_the_same_records(twin: TwinName, batches: list[bytes]) -> None:
    arrow = decode(b"".join(batches), twin=twin).to_arrow(control=True)
    assert shown(arrow) == [row for batch in batches for row in rows_of(batch)]


@settled
@given(batches=st.lists(built_batches, max_size=3), data=st.data())
def test_kept_rows_and_no_control_records(twin: TwinName, batches: list[bytes], data: st.DataObject) -> None:
    columns = decode(b"".join(batches), twin=twin)
    keep = data.draw(st.lists(st.booleans(), min_size=columns.count, max_size=columns.count))
    rows = [(row, read_header(batch).is_control) for batch in batches for row in rows_of(batch)]
    visible = [row for row, is_control in rows if not is_control]
    assert shown(columns.to_arrow()) == visible
    assert shown(columns.to_arrow(keep=keep)) == [
        row for (row, is_control), kept in zip(rows, keep, strict=True) if kept and not is_control
    ]
    assert shown(columns.to_arrow(keep=keep, control=True)) == [
        row for (row, _), kept in zip(rows, keep, strict=True) if kept
    ]


def test_the_columns_of_sparks_source(twin: TwinName) -> None:
    columns = decode(build_batch([RecordInput(b"k", b"v", 1, [("h", b"c")])] * 2, base_offset=7), twin=twin)
    batch = columns.to_arrow(topic="orders", partition=3)
    assert batch.schema == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", "UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )
    assert batch.column("topic").to_pylist() == ["orders", "orders"]
    assert batch.column("partition").to_pylist() == [3, 3]
    assert batch.column("offset").to_pylist() == [7, 8]
    assert columns.to_arrow(headers=False).schema.names == ["key", "value", "offset", "timestamp", "timestampType"]


def test_the_brokers_time_has_type_one(twin: TwinName) -> None:
    own = build_batch([RecordInput(None, b"v", 5)])
    stamped = build_batch([RecordInput(None, b"v", 5)], base_offset=1)
    set_append_time(stamped, read_header(stamped), 9)
    batch = decode(bytes(own + stamped), twin=twin).to_arrow()
    assert batch.column("timestampType").to_pylist() == [0, 1]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [5, 9]


def test_nothing_left(twin: TwinName) -> None:
    for log in (b"", bytes(build_batch([RecordInput(b"k", b"v", 1)], attributes=TRANSACTIONAL | CONTROL))):
        batch = decode(log, twin=twin).to_arrow(topic="t", partition=0)
        batch.validate(full=True)
        assert (batch.num_rows, batch.num_columns) == (0, 8)


def test_a_name_that_is_not_text(twin: TwinName) -> None:
    """Arrow's strings must be UTF-8, or whoever reads them may crash; each name by itself, not the names in a row."""
    names = ["ab", "cd", "plain"]
    batch = bytearray(build_batch([RecordInput(b"k", b"v", 1, [(name, b"") for name in names])]))
    for name, bad in (("ab", b"a\xc3"), ("cd", b"\xa9d")):  # together they would be text
        at = batch.index(name.encode())
        batch[at : at + 2] = bad
    arrow = decode(with_crc(batch), twin=twin).to_arrow()
    arrow.validate(full=True)
    assert [pair["key"] for pair in arrow.column("headers").to_pylist()[0]] == ["a\ufffd", "\ufffdd", "plain"]


def test_keep_must_fit(twin: TwinName) -> None:
    columns = decode(build_batch([RecordInput(b"k", b"v", 1)] * 2), twin=twin)
    with pytest.raises(ValueError, match="3 entries for 2 records"):
        columns.to_arrow(keep=[True] * 3)
    assert columns.to_arrow(keep=bytes([0, 1])).column("offset").to_pylist() == [1]


def test_arrow_outlives_the_columns(twin: TwinName) -> None:
    log = bytearray(build_batch([RecordInput(b"key", b"value", 1)] * 3))
    batch = decode(log, twin=twin).to_arrow()
    log[:] = bytes(len(log))
    assert batch.column("value").to_pylist() == [b"value"] * 3
    assert batch.column("offset").to_pylist() == [0, 1, 2]
