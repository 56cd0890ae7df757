"""An Arrow batch becomes columns and batches, and comes back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.protocol.records.batches import built_batches, expected, records_of
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.records import TwinName, decode, encode
from tidelog.protocol.records.from_arrow import from_arrow


def contents(columns: Any) -> list[Any]:
    return [record._replace(offset=0) for record in records_of(columns)]


@settings(max_examples=60)
@given(batches=st.lists(built_batches, max_size=3), data=st.data())
def test_there_and_back(twin: TwinName, batches: list[bytes], data: st.DataObject) -> None:
    columns = decode(b"".join(batches), twin=twin)
    arrow = columns.to_arrow(control=True, topic="t", partition=1)
    begin = data.draw(st.integers(0, arrow.num_rows))
    end = data.draw(st.integers(begin, arrow.num_rows))
    again = from_arrow(arrow.slice(begin, end - begin), twin=twin)
    assert contents(again) == contents(columns)[begin:end]
    assert again.offset.tolist() == list(range(end - begin))
    log = b"".join(map(bytes, encode(again, batch_bytes=1000)))
    assert [record._replace(offset=0) for record in expected(log)] == contents(columns)[begin:end]


def test_only_a_value(twin: TwinName) -> None:
    columns = from_arrow(pa.record_batch({"value": pa.array([b"a", None, b""])}), twin=twin)
    assert [(record.key, record.value, record.timestamp) for record in records_of(columns)] == [
        (None, b"a", -1),
        (None, None, -1),
        (None, b"", -1),
    ]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_text_and_bytes(twin: TwinName, kind: pa.DataType) -> None:
    values = pa.array([b"one", None, b"three"]).cast(kind)
    columns = from_arrow(pa.record_batch({"key": values, "value": values}), twin=twin)
    assert [(record.key, record.value) for record in records_of(columns)] == [
        (b"one", b"one"),
        (None, None),
        (b"three", b"three"),
    ]


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns")])
def test_times_of_any_unit(twin: TwinName, kind: pa.DataType) -> None:
    milliseconds = pa.array([5, None, 1_700_000_000_123])
    values = milliseconds if kind == pa.int64() else milliseconds.cast(pa.timestamp("ms", kind.tz)).cast(kind)
    batch = pa.record_batch({"value": pa.array([b"v"] * 3), "timestamp": values})
    assert from_arrow(batch, twin=twin).timestamp.tolist() == [5, -1, 1_700_000_000_123]


def test_headers_of_a_null_list_are_none(twin: TwinName) -> None:
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    pairs = pa.array([{"key": "a", "value": b"1"}, {"key": "b", "value": None}], pair)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2]), pairs, mask=pa.array([True, False]))
    columns = from_arrow(pa.record_batch({"value": pa.array([b"v", b"v"]), "headers": lists}), twin=twin)
    assert [record.headers for record in records_of(columns)] == [(), (("b", None),)]


def test_a_header_needs_a_name(twin: TwinName) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    lists = pa.array([[{"key": None, "value": b"1"}]], kind)
    with pytest.raises(ValueError, match="no name"):
        from_arrow(pa.record_batch({"value": pa.array([b"v"]), "headers": lists}), twin=twin)


def test_the_twin_that_is_there_does_it() -> None:
    """Nothing named: what decode takes, from_arrow takes."""
    log = build_batch([RecordInput(b"k", b"v", 1)])
    assert decode(log).twin == from_arrow(decode(log).to_arrow()).twin == "native"
