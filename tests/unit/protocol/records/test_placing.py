"""Records to partitions: both twins as the partitioner says, and nothing lost when columns are divided."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.batch import Record
from tidelog.protocol.partitioner import partition_for_key
from tidelog.protocol.records.columns import Columns, TwinName
from tidelog.protocol.records.from_arrow import from_arrow
from tidelog.protocol.records.placing import divide, place, spread

PAIRS = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=5)), max_size=3)
Records = list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]
RECORDS = st.lists(st.tuples(st.none() | st.binary(max_size=13), st.none() | st.binary(max_size=9), PAIRS), max_size=40)


def _columns(records: Records, twin: TwinName) -> Columns:
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = [[{"key": name, "value": value} for name, value in pairs] for _, _, pairs in records]
    batch = pa.record_batch(
        [
            pa.array([key for key, _, _ in records], pa.binary()),
            pa.array([value for _, value, _ in records], pa.binary()),
            pa.array(headers, pa.list_(pair)),
        ],
        ["key", "value", "headers"],
    )
    return from_arrow(batch, twin=twin)


@given(records=RECORDS, partitions=st.integers(1, 9), data=st.data())
def test_keys_are_placed_as_java_places_them(
    twin: TwinName,
    records: Records,
    partitions: int,
    data: st.DataObject,
) -> None:
    columns = _columns(records, twin)
    wanted = data.draw(st.none() | st.lists(st.integers(-1, 5), min_size=len(records), max_size=len(records)))
    places = place(columns, partitions, wanted).tolist()
    expected = [-1 if key is None else partition_for_key(key, partitions) for key, _, _ in records]
    if wanted is not None:
        expected = [one if one >= 0 else by_key for one, by_key in zip(wanted, expected, strict=True)]
    assert places == expected


@given(records=RECORDS, partitions=st.integers(1, 5), first=st.integers(0, 4), rows_per_block=st.integers(1, 7))
def test_dividing_keeps_every_record_in_its_order(
    twin: TwinName,
    records: Records,
    partitions: int,
    first: int,
    rows_per_block: int,
) -> None:
    columns = _columns(records, twin)
    places = place(columns, partitions)
    blocks = spread(columns, places, first, rows_per_block, partitions)
    without = [row for row, (key, _, _) in enumerate(records) if key is None]
    assert blocks == -(-len(without) // rows_per_block)
    for number, row in enumerate(without):
        assert places[row] == (first + number // rows_per_block) % partitions
    for partition, part in divide(columns, places):
        rows = [row for row in range(len(records)) if places[row] == partition]
        assert rows
        expected = [
            Record(offset, -1, records[row][0], records[row][1], tuple(records[row][2]))
            for offset, row in enumerate(rows)
        ]
        assert [part.record(index) for index in range(part.count)] == expected
    assert sum(part.count for _, part in divide(columns, places)) == len(records)
