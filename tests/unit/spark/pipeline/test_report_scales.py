"""Axes, ticks and figures of the report."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.pipeline.report.figures import moment, short, size, span
from tidelog.spark.pipeline.report.scales import Scale, number_axis, span_axis, time_axis

values = st.floats(0, 1e15) | st.integers(0, 10**15)


@given(values, st.booleans())
def test_a_number_axis_holds_the_value_with_few_ticks_at_equal_steps(most: float, whole: bool) -> None:
    axis = number_axis(most, whole=whole)
    places = [value for value, _ in axis.ticks]
    assert (axis.low, axis.high) == (0.0, places[-1])
    assert axis.high >= most * (1 - 1e-9)
    assert 2 <= len(places) <= 6
    steps = {round((later - earlier) / (places[1] or 1), 6) for earlier, later in pairwise(places)}
    assert steps == {1.0}
    names = [name for _, name in axis.ticks]
    assert len(set(names)) == len(names)


@given(st.integers(0, 10**13))
def test_an_axis_of_durations_has_names_that_differ(most: int) -> None:
    axis = span_axis(most)
    names = [name for _, name in axis.ticks]
    assert axis.high >= most
    assert 2 <= len(names) <= 6
    assert len(set(names)) == len(names)


@given(st.integers(-(10**12), 4 * 10**12), st.integers(0, 10**13))
def test_ticks_of_time_are_within_and_not_too_many(low: int, length: int) -> None:
    axis = time_axis(low, low + length)
    assert len(axis.ticks) <= 7
    assert all(low <= at <= low + length for at, _ in axis.ticks)


def test_axes_as_people_draw_them() -> None:
    assert [name for _, name in number_axis(8313, whole=True).ticks] == ["0", "5k", "10k"]
    assert [name for _, name in number_axis(3, whole=True).ticks] == ["0", "1", "2", "3"]
    assert [name for _, name in number_axis(0).ticks] == ["0", "1"]
    assert [name for _, name in span_axis(95_000).ticks] == ["0", "30s", "1m", "1m 30s", "2m"]
    assert [name for _, name in span_axis(0).ticks] == ["0", "1s"]
    begin = 1_794_852_000_000
    ticks = time_axis(begin, begin + 290_000, 5).ticks
    assert [name for _, name in ticks] == ["18:00", "18:01", "18:02", "18:03", "18:04"]
    days = time_axis(begin, begin + 2 * 86_400_000, 5).ticks
    assert [name for _, name in days[:2]] == ["17 Nov 00:00", "17 Nov 12:00"]


@given(st.floats(-1e12, 1e12), st.floats(0, 1e12), st.floats(0, 1))
def test_a_scale_keeps_within_its_ends(low: float, length: float, part: float) -> None:
    place = Scale(low, low + length, 58, 528)(low + length * part)
    assert 57.9 <= place <= 528.1


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0, "0s"),
        (350, "350ms"),
        (999.6, "1s"),
        (1800, "1.8s"),
        (61_000, "1m 1s"),
        (3_600_000, "1h"),
        (3_660_000, "1h 1m"),
        (90_061_000, "1d 1h"),
    ],
)
def test_durations_have_two_units_at_most(ms: float, said: str) -> None:
    assert span(ms) == said


def test_figures() -> None:
    assert [short(number) for number in (0, 0.5, 12, 999, 1200, 2431, 3.5e7)] == [
        "0",
        "0.5",
        "12",
        "999",
        "1.2k",
        "2.43k",
        "35M",
    ]
    assert [size(number) for number in (0, 1023, 1024, 12_345_678)] == ["0 B", "1023 B", "1 KiB", "11.8 MiB"]
    assert moment(0) == "1970-01-01 00:00:00"
    assert moment(10**18) == f"{10**18} ms"
