"""Coverage and comparison against a model that keeps a Python number for each offset."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.spark.audit.compare import FAULTS, Span, compare
from tidelog.spark.audit.coverage import DELETED, HIDDEN, LAKE, LOG, OUTLETS_MAX, OUTSIDE, SCOPE, Coverage
from tidelog.spark.audit.ranges import Ranges, joined, ranges, runs

PARTITIONS = [("orders", 0), ("orders", 1), ("payments", 0)]
OFFSETS = 24


class World(NamedTuple):
    """Of one partition: what each offset is, and how often it is in the table."""

    deleted_to: int
    scope_from: int
    scope_to: int
    log_end: int
    states: list[int]
    """LOG, HIDDEN, or SCOPE for what was cleaned."""
    rows: list[int]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    bounds = sorted(draw(st.lists(st.integers(0, OFFSETS), min_size=4, max_size=4)))
    states = draw(st.lists(st.sampled_from([LOG, LOG, LOG, HIDDEN, SCOPE]), min_size=OFFSETS, max_size=OFFSETS))
    rows = draw(st.lists(st.sampled_from([0, 1, 1, 1, 2, 3]), min_size=OFFSETS, max_size=OFFSETS))
    return World(*bounds, states, rows)


def fill(coverage: Coverage, index: int, world: World, shuffled: list[int]) -> None:
    def add(kind: int, *pairs: tuple[int, int]) -> None:
        coverage.add(kind, index, *ranges(*pairs))

    add(DELETED, (0, world.deleted_to))
    add(OUTSIDE, (world.deleted_to, world.scope_from), (world.scope_to, world.log_end))
    add(SCOPE, (world.scope_from, world.scope_to))
    for kind in (LOG, HIDDEN):
        held = [offset for offset in range(world.scope_from, world.scope_to) if world.states[offset] == kind]
        coverage.add(kind, index, *runs(np.array(held, np.int64)))
    for offset in shuffled:
        for _ in range(world.rows[offset]):
            add(LAKE, (offset, offset + 1))


def naive(world: World) -> dict[str, Counter[int]]:
    """Of each fault and kind of row: offset to rows."""
    found: dict[str, Counter[int]] = {name: Counter() for name in (*FAULTS, "cleaned", "deleted", "outside")}
    for offset in range(OFFSETS):
        rows = world.rows[offset]
        in_scope = world.scope_from <= offset < world.scope_to
        if in_scope and world.states[offset] == LOG:
            if rows == 0:
                found["missing"][offset] = 1
        elif in_scope and world.states[offset] == SCOPE:
            found["cleaned"][offset] = rows
        elif offset < world.deleted_to:
            found["deleted"][offset] = rows
        elif not in_scope and offset < world.log_end:
            found["outside"][offset] = rows
        else:
            found["surplus"][offset] = rows
            continue
        if rows > 1:
            found["doubled"][offset] = rows - 1
    return found


@settings(max_examples=60)
@given(
    st.lists(worlds(), min_size=len(PARTITIONS), max_size=len(PARTITIONS)),
    st.permutations(range(OFFSETS)),
    st.sampled_from([4, 10, 1000]),
)
def test_every_offset_is_judged_as_the_model_does(
    all_worlds: list[World], shuffled: list[int], boundaries_max: int
) -> None:
    with Coverage(boundaries_max=boundaries_max, chunk_min=1) as coverage:
        for index, world in enumerate(all_worlds):
            fill(coverage, index, world, shuffled)
        tallies = compare(coverage.segments(), PARTITIONS)
    for world, tally in zip(all_worlds, tallies, strict=True):
        expected = naive(world)
        in_log = [one for one in range(world.scope_from, world.scope_to) if world.states[one] == LOG]
        assert tally.records == len(in_log)
        assert tally.rows == sum(world.rows[one] for one in in_log)
        for name, offsets in expected.items():
            assert getattr(tally, name) == sum(offsets.values()), name
        for fault in FAULTS:
            named = [one for span in tally.spans[fault] for one in range(span.first, span.last + 1)]
            assert named == sorted(+expected[fault])
            assert tally.span_counts[fault] == len(tally.spans[fault])
            for span, after in zip(tally.spans[fault], tally.spans[fault][1:], strict=False):
                assert after.first > span.last + 1 or after.rows != span.rows, "neighbours are one range"
        assert tally.is_balanced == (not any(sum(expected[fault].values()) for fault in FAULTS))


def test_what_follows_each_other_takes_two_boundaries_and_no_file() -> None:
    with Coverage(boundaries_max=1000) as coverage:
        for start in range(0, 1_000_000, 100):
            coverage.add(LOG, 0, *ranges((start, start + 100)))
        assert coverage.spilled_runs == 0
        (portion,) = coverage.segments()
    assert (portion.start.tolist(), portion.end.tolist()) == ([0], [1_000_000])


def test_what_has_gaps_goes_to_a_file_in_sorted_runs() -> None:
    order = np.random.default_rng(7).permutation(20_000) * 2
    with Coverage(boundaries_max=2_000) as coverage:
        for part in np.split(order, 200):
            coverage.add(LAKE, 0, part, part + 1)
        assert coverage.spilled_runs > 5
        portions = list(coverage.segments())
    assert max(len(one.start) for one in portions) < 20_000, "it is not all in memory at the end either"
    assert np.concatenate([one.start for one in portions]).tolist() == list(range(0, 40_000, 2))
    assert (np.concatenate([one.rows for one in portions]) == 1).all()


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, OFFSETS - 1), max_size=30), min_size=1, max_size=OUTLETS_MAX),
    st.sampled_from([4, 1000]),
)
def test_rows_of_several_outlets_are_told_apart_and_added_up(outlets: list[list[int]], boundaries_max: int) -> None:
    with Coverage(boundaries_max=boundaries_max, chunk_min=1) as coverage:
        for kind in (SCOPE, LOG):
            coverage.add(kind, 0, *ranges((0, OFFSETS)))
        for number, offsets in enumerate(outlets):
            coverage.add(LAKE + number, 0, *runs(np.array(sorted(offsets), np.int64)))
        (tally,) = compare(coverage.segments(), PARTITIONS[:1], outlets=len(outlets))
    by_offset = {offset: tuple(one.count(offset) for one in outlets) for offset in range(OFFSETS)}
    assert tally.by_outlet == [len(one) for one in outlets]
    assert tally.rows == sum(map(len, outlets))
    assert tally.missing == sum(not any(counts) for counts in by_offset.values())
    assert tally.doubled == sum(max(0, sum(counts) - 1) for counts in by_offset.values())
    named = {offset: span for span in tally.spans["doubled"] for offset in range(span.first, span.last + 1)}
    assert sorted(named) == [offset for offset, counts in by_offset.items() if sum(counts) > 1]
    for offset, span in named.items():
        assert span.rows == sum(by_offset[offset])
        assert span.by_outlet == (by_offset[offset] if len(outlets) > 1 else ())


def test_more_copies_than_an_outlet_can_tell_are_doubled_all_the_same() -> None:
    with Coverage() as coverage:
        for kind in (SCOPE, LOG):
            coverage.add(kind, 0, *ranges((0, 1)))
        coverage.add(LAKE, 0, np.zeros(64, np.int64), np.ones(64, np.int64))
        (tally,) = compare(coverage.segments(), PARTITIONS[:1], outlets=2)
    assert (tally.rows, tally.doubled, tally.missing) == (64, 63, 0)


def test_more_ranges_than_are_kept_are_counted() -> None:
    with Coverage() as coverage:
        coverage.add(SCOPE, 0, *ranges((0, 100)))
        coverage.add(LOG, 0, *ranges((0, 100)))
        landed = np.arange(0, 100, 2)
        coverage.add(LAKE, 0, landed, landed + 1)
        (tally, _, _) = compare(coverage.segments(), PARTITIONS, named_max=3)
    assert tally.spans["missing"] == [Span("orders", 0, first, first, 0) for first in (1, 3, 5)]
    assert (tally.span_counts["missing"], tally.missing) == (50, 50)


@given(st.lists(st.integers(0, 40)), st.lists(st.integers(-5, 45)))
def test_ranges_hold_what_was_put_in(members: list[int], asked: list[int]) -> None:
    held = runs(np.array(sorted(set(members)), np.int64))
    assert held.offsets == len(set(members))
    assert held.contains(np.array(asked, np.int64)).tolist() == [one in members for one in asked]
    assert joined(*held).pairs() == held.pairs()


def test_an_offset_that_comes_twice_is_in_two_ranges() -> None:
    assert runs(np.array([5, 6, 6, 7, 9])).pairs() == [(5, 7), (6, 8), (9, 10)]
    assert isinstance(runs(np.array([], np.int64)), Ranges)
