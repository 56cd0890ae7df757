"""The rows of a table, whatever their order and types, as offsets and windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.audit.coverage import Coverage
from tidelog.spark.audit.errors import AuditError
from tidelog.spark.audit.lake import LakeCounts, Outlet, read_lake
from tidelog.spark.audit.ranges import Ranges, ranges

PLACES = [("a", 0), ("a", 1), ("b", 0)]
WINDOW_MS = 10
Coordinates = tuple[str, int, int, int]


class Side(NamedTuple):
    """What the log's side tells of a partition."""

    scope: Ranges = ranges((0, 1000))
    gaps: Ranges | None = ranges()
    offsets: Any = None
    times: Any = None


class Batches:
    def __init__(self, *batches: pa.RecordBatch) -> None:
        self._batches = batches

    def rows(self) -> Iterator[pa.RecordBatch]:
        yield from self._batches


def batch_of(rows: list[Coordinates], topic: Any = None, unit: str = "ms") -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    per_ms = {"ms": 1, "us": 1_000, "ns": 1_000_000}[unit]
    return pa.record_batch(
        {
            "topic": pa.array(columns[0], topic or pa.string()),
            "partition": pa.array(columns[1], pa.int32()),
            "offset": pa.array(columns[2], pa.int64()),
            "timestamp": pa.array([time * per_ms for time in columns[3]], pa.int64()).cast(pa.timestamp(unit, "UTC")),
        }
    )


def read(table: Batches, sides: list[Side] | None = None) -> tuple[LakeCounts, list[Counter[int]]]:
    """What was counted, and offset to rows of each place."""
    found: list[Counter[int]] = [Counter() for _ in PLACES]
    with Coverage(boundaries_max=16) as coverage:
        numbered = dict(zip(PLACES, enumerate(sides or [Side()] * len(PLACES)), strict=True))
        counts = read_lake([Outlet("lake", table)], numbered, coverage, WINDOW_MS)
        for part in coverage.segments():
            for at, start, end, rows in zip(part.at, part.start, part.end, part.rows, strict=True):
                found[at].update({offset: int(rows) for offset in range(start, end)})
    return counts, found


rows_of_tables = st.lists(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 2), st.integers(0, 30), st.integers(-1, 60))),
    max_size=4,
)


@given(
    rows_of_tables,
    st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]),
    st.sampled_from(["ms", "us", "ns"]),
)
def test_every_row_is_counted_at_its_place_and_in_its_window(
    tables: list[list[Coordinates]], topic: pa.DataType, unit: str
) -> None:
    side = Side(scope=ranges((5, 25)), gaps=ranges((7, 9)))
    counts, found = read(Batches(*(batch_of(rows, topic, unit) for rows in tables)), [side] * 3)
    every = [row for rows in tables for row in rows]
    for index, place in enumerate(PLACES):
        here = [row for row in every if row[:2] == place]
        assert found[index] == Counter(row[2] for row in here)
        judged = [row for row in here if 5 <= row[2] < 25 and row[2] not in (7, 8)]
        assert counts.windows[index].counts == Counter(row[3] // WINDOW_MS * WINDOW_MS for row in judged)
    assert counts.rows == len(every)
    assert counts.other_topics == sum(row[:2] not in PLACES for row in every)


def test_rows_of_an_earlier_topic_are_those_that_the_log_has_not() -> None:
    side = Side(offsets=np.array([0, 1, 3]), times=np.array([100, 101, 103]))
    rows = [("a", 0, 0, 100), ("a", 0, 0, 50), ("a", 0, 1, 51), ("a", 0, 2, 102), ("a", 0, 9, 59)]
    counts, found = read(Batches(batch_of(rows)), [side, Side(), Side()])
    assert found[0] == {0: 1}
    assert counts.earlier == [4, 0, 0]
    nothing = Side(offsets=np.array([], np.int64), times=np.array([], np.int64))
    assert read(Batches(batch_of(rows)), [nothing, Side(), Side()])[0].earlier == [5, 0, 0]


def test_what_cannot_be_read_is_an_error_and_not_a_loss() -> None:
    good = batch_of([("a", 0, 1, 1)])
    with pytest.raises(AuditError, match="no column offset"):
        read(Batches(good.select(["topic", "partition", "timestamp"])))
    with pytest.raises(AuditError, match="1 rows of the table have no offset"):
        read(Batches(good.set_column(2, "offset", pa.array([None], pa.int64()))))
    with pytest.raises(AuditError, match="needs a timestamp"):
        read(Batches(good.set_column(3, "timestamp", pa.array(["now"]))))
    with pytest.raises(AuditError, match="no partition has"):
        read(Batches(good.set_column(1, "partition", pa.array([-1], pa.int32()))))
