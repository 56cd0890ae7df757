"""The pure parts of planning: offsets as text, which task reads what, how much a batch takes, filters as bounds."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual, Not

from tidelog.spark.offsets import Offsets
from tidelog.spark.source.behind import behind
from tidelog.spark.source.filters import Bounds
from tidelog.spark.source.splitting import limited, split

ATS = st.tuples(st.sampled_from(["a", "b", "c.d"]), st.integers(0, 12))
RANGES = st.dictionaries(ATS, st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(sorted).map(tuple), max_size=8)


@given(st.dictionaries(ATS, st.integers(0, 2**62)), st.dictionaries(st.sampled_from(["a", "b"]), st.text(min_size=1)))
def test_offsets_come_back_and_their_text_is_always_the_same(at: dict, ids: dict) -> None:
    there = Offsets(at, {topic: text for topic, text in ids.items() if any(topic == one for one, _ in at)})
    text = json.dumps(there.to_json())
    back = Offsets.from_json(json.loads(text))
    assert back == there
    shuffled = Offsets(dict(reversed(list(at.items()))), dict(reversed(list(there.ids.items()))))
    assert json.dumps(shuffled.to_json()) == text


def test_offsets_are_written_as_sparks_own_source_writes_them() -> None:
    offsets = Offsets({("t", 10): 5, ("t", 9): 4, ("s", 0): 1}, {"t": "id"})
    assert json.dumps(offsets.to_json()) == '{"s": {"0": 1}, "t": {"9": 4, "10": 5}, "$ids": {"t": "id"}}'
    assert Offsets.from_json({"t": {"0": 23}}) == Offsets({("t", 0): 23})
    for bad in ({"t": 1}, {"t": {"0": "1"}}, {"t": {"-1": 1}}, {"t": {"0": 1}, "$ids": 3}):
        with pytest.raises(ValueError):
            Offsets.from_json(bad)


@given(RANGES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 300))
def test_parts_cover_the_ranges_once(ranges: dict, at_least: int | None, records_max: int | None) -> None:
    parts = split(ranges, at_least=at_least, records_max=records_max)
    covered: dict = {}
    for part in parts:
        assert part.start < part.end
        start, _ = ranges[part.at]
        assert part.start == covered.get(part.at, start)  # in order, without gaps
        covered[part.at] = part.end
        assert records_max is None or part.end - part.start <= records_max
    assert covered == {at: end for at, (start, end) in ranges.items() if end > start}


def test_large_ranges_are_split_more() -> None:
    parts = split({("a", 0): (0, 900), ("a", 1): (0, 100)}, at_least=10)
    assert [part.at[1] for part in parts] == [0] * 9 + [1]
    assert split({("a", 0): (5, 5)}, at_least=4) == []
    assert len(split({("a", 0): (0, 3)}, at_least=10)) == 3
    assert [(part.start, part.end) for part in split({("a", 0): (0, 10)}, records_max=4)] == [(0, 3), (3, 6), (6, 10)]


@given(RANGES, st.integers(1, 500))
def test_a_limit_is_kept_but_for_one_offset_each_and_nothing_starves(ranges: dict, limit: int) -> None:
    ends = limited(ranges, limit)
    taken = {at: ends[at] - start for at, (start, _) in ranges.items()}
    assert all(0 <= taken[at] <= end - start for at, (start, end) in ranges.items())
    assert all(taken[at] > 0 for at, (start, end) in ranges.items() if end > start)
    assert sum(taken.values()) <= limit + len(ranges)


def test_a_limit_is_shared_out_in_proportion() -> None:
    ranges = {("a", 0): (100, 1000), ("a", 1): (0, 100), ("a", 2): (7, 7)}
    assert limited(ranges, 100) == {("a", 0): 190, ("a", 1): 10, ("a", 2): 7}
    assert limited(ranges, 1000) == {("a", 0): 1000, ("a", 1): 100, ("a", 2): 7}
    # 900 offsets of 10 bytes and 100 of 90 weigh the same.
    by_bytes = limited(ranges, 1800, {("a", 0): 10.0, ("a", 1): 90.0})
    assert by_bytes == {("a", 0): 190, ("a", 1): 10, ("a", 2): 7}


def test_behind_is_what_is_not_planned() -> None:
    latest, planned = {("a", 0): 10, ("a", 1): 30, ("b", 0): 5}, {("a", 0): 10, ("a", 1): 10}
    assert behind(latest, planned, {}) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "20",
        "avgOffsetsBehindLatest": str(20 / 3),
    }
    assert behind(latest, planned, dict.fromkeys(latest, 2.5))["estimatedTotalBytesBehindLatest"] == "50"
    assert behind({}, {}, {}) == {}


UTC = datetime.UTC
ALL = {("a", 0): (10, 100), ("a", 1): (0, 50), ("b", 0): (0, 7)}


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([EqualTo(("partition",), 1)], {("a", 1): (0, 50)}),
        ([In(("partition",), (1, 2)), EqualTo(("topic",), "b")], {}),
        ([EqualTo(("topic",), "b")], {("b", 0): (0, 7)}),
        ([GreaterThan(("offset",), 20), LessThanOrEqual(("offset",), 30)], {("a", 0): (21, 31), ("a", 1): (21, 31)}),
        (
            [GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 7)],
            {("a", 1): (5, 7), ("b", 0): (5, 7)},
        ),
        ([EqualTo(("offset",), 12)], {("a", 0): (12, 13), ("a", 1): (12, 13)}),
        ([In(("offset",), (12, 3))], {("a", 0): (10, 13), ("a", 1): (3, 13), ("b", 0): (3, 7)}),
        ([Not(EqualTo(("partition",), 1)), EqualTo(("key",), b"x")], ALL),  # not understood: nothing is left out
        ([EqualTo(("headers", "key"), 1)], ALL),
    ],
)
def test_filters_narrow_what_is_read(filters: list, left: dict) -> None:
    bounds = Bounds()
    bounds.take(filters)
    assert bounds.narrowed(ALL, {}) == left


def test_a_time_bounds_from_below_only() -> None:
    bounds = Bounds()
    bounds.take([LessThan(("timestamp",), datetime.datetime(2020, 1, 1, tzinfo=UTC))])
    assert bounds.time_min_ms is None
    bounds.take([GreaterThan(("timestamp",), datetime.datetime(1970, 1, 1, 0, 0, 1, 1999, tzinfo=UTC))])
    assert bounds.time_min_ms == 1001
    found = bounds.narrowed(ALL, {("a", 0): 40, ("a", 1): None, ("b", 0): 0})
    assert found == {("a", 0): (40, 100), ("b", 0): (0, 7)}


def test_a_planner_imports_nothing_that_only_a_worker_needs() -> None:
    # Spark starts a process for each stream to plan it, and nothing is read before that has imported what it needs.
    code = (
        "import sys, tidelog.spark.source.stream, tidelog.spark.source.batch, tidelog.spark.source.tasks as tasks;"
        "from tidelog.spark.source.options import parse_options;"
        "tasks.pieces({('t', 0): (0, 1)}, {}, parse_options({'kafka.bootstrap.servers': 'h:1', 'subscribe': 't'}));"
        "print(*{'numba', 'pyarrow.compute', 'tidelog.spark.source.rows'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
