"""The charts of a flow, from its history. A chart that would be empty is not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from tidelog.spark.pipeline.history import REPROCESSED, Sample, thinned
from tidelog.spark.pipeline.recording import LATE
from tidelog.spark.pipeline.report.charts import Chart, Event, Kind, Point
from tidelog.spark.pipeline.report.facts import Facts, FlowFacts
from tidelog.spark.pipeline.report.figures import count, moment, plural, short, span
from tidelog.spark.pipeline.report.scales import TIME_STEPS_MS, Axis, number_axis, span_axis, time_axis

POINTS_MAX: Final = 200
TOTALS: Final = {LATE: "Late rows, in all", "duplicates": "Duplicates, in all", "unmatched": "Unmatched rows, in all"}
"""Titles of what flows count in their life (Sample.totals); whatever has no title here is shown by its name."""


def charts_of(facts: Facts, one: FlowFacts) -> list[Chart]:
    runs = _runs(facts, one.samples)
    charts = [
        _rates(facts, runs),
        _durations(runs),
        _lag_records(runs),
        _lag_time(runs),
        _watermark(runs),
        *(_total(name, runs) for name in sorted({name for sample in one.samples for name in sample.totals})),
    ]
    return [chart for chart in charts if chart is not None]


def events_of(facts: Facts, one: FlowFacts) -> list[Event]:
    """Kills and new starts of the run, the flow's failures, and when it was reprocessed."""
    events = []
    starts = 0
    for mark in facts.runs:
        starts += mark.what == "started"
        if mark.what == "died":
            events.append(Event(mark.at_ms, True, f"the run died ({mark.text})"))
        elif mark.what == "started" and starts > 1:
            events.append(Event(mark.at_ms, False, f"the run started again ({mark.text})"))
    failures = [mark for mark in one.marks if mark.what in ("failed", "given up")]
    events += [Event(mark.at_ms, True, f"{mark.what}: {mark.text}") for mark in failures]
    events += [Event(mark.at_ms, False, "rebuilt from the log") for mark in one.marks if mark.what == REPROCESSED]
    return [event for event in events if facts.begin_ms <= event.at_ms <= facts.end_ms]


def _runs(facts: Facts, samples: Sequence[Sample]) -> list[list[Sample]]:
    """Cut where a run began: between two runs nobody measured."""
    starts = sorted(mark.at_ms for mark in facts.runs if mark.what == "started")
    runs: list[list[Sample]] = []
    last = -1
    for sample in samples:
        number = sum(start <= sample.at_ms for start in starts)
        if number != last or not runs:
            runs.append([])
        last = number
        runs[-1].append(sample)
    return [_few(run) for run in runs]


def _few(samples: list[Sample]) -> list[Sample]:
    while len(samples) > POINTS_MAX:
        samples = [line for line in thinned(samples) if isinstance(line, Sample)]
    return samples


def _rates(facts: Facts, runs: list[list[Sample]]) -> Chart | None:
    samples = [sample for run in runs for sample in run]
    if not any(sample.rows for sample in samples):
        return None
    width_ms = bin_ms(samples, facts.end_ms - facts.begin_ms)
    stretches = [_binned(run, width_ms) for run in runs if run]
    most = max(value for stretch in stretches for _, value, _ in stretch)
    return Chart(
        title="Rows per second",
        note=f"means of {span(width_ms)}, most {short(most)}",
        kind="steps",
        color=1,
        axis=number_axis(most),
        runs=stretches,
    )


def bin_ms(samples: Sequence[Sample], length_ms: int) -> int:
    """Wide enough that a steady flow of batches gives a steady line."""
    ends = sorted(sample.at_ms for sample in samples if sample.batches)
    gaps = [later - earlier for earlier, later in pairwise(ends)]
    wanted = max(1000, length_ms / 120, 2 * median(gaps) if gaps else 0)
    return next((step for step in TIME_STEPS_MS if step >= wanted), TIME_STEPS_MS[-1])


def _binned(run: Sequence[Sample], width_ms: int) -> list[Point]:
    """A batch's rows are spread from the end of the one before it on: that is how long they took to come."""
    times = [at for sample in run for at in (sample.since_ms, sample.at_ms)]
    begin, end = min(times), max(times)
    bins = [0.0] * max(1, round((end - begin) / width_ms))  # what is left over belongs to the last one
    before = begin
    for sample in run:
        left, right = min(before, sample.since_ms, sample.at_ms), sample.at_ms  # a clock may be set back
        before = sample.at_ms
        for number in range((left - begin) // width_ms, (right - begin) // width_ms + 1):
            low, high = max(left, begin + number * width_ms), min(right, begin + (number + 1) * width_ms)
            share = (high - low) / (right - left) if right > left else 1.0
            bins[min(number, len(bins) - 1)] += sample.rows * share
    edges = [*(begin + number * width_ms for number in range(len(bins))), end]
    found = [
        (left, rate := rows * 1000 / max(right - left, 1000), f"{moment(left, '%H:%M:%S')}: {short(rate)} rows/s")
        for rows, (left, right) in zip(bins, pairwise(edges), strict=True)
    ]
    return [*found, (end, found[-1][1], "")]


def _durations(runs: list[list[Sample]]) -> Chart | None:
    found = _points(
        [[sample for sample in run if sample.batches] for run in runs],
        lambda sample: sample.longest_ms,
        lambda sample: f"{span(sample.longest_ms)}, {plural(sample.rows, 'row')}",
    )
    values = [value for run in found for _, value, _ in run]
    if not values:
        return None
    batches = sum(sample.batches for run in runs for sample in run)
    return Chart(
        title="Batch duration",
        note=f"{plural(batches, 'batch')}, longest {span(max(values))}".replace("batchs", "batches"),
        kind="dots",
        color=4,
        axis=span_axis(max(values)),
        runs=found,
    )


def _lag_records(runs: list[list[Sample]]) -> Chart | None:
    found = _points(runs, lambda sample: sample.lag_records, lambda sample: f"{count(sample.lag_records)} behind")
    values = [value for run in found for _, value, _ in run]
    if not values:
        return None
    note = f"at the end {count(int(values[-1]))}, most {count(int(max(values)))}"
    return _line("Lag in records", note, 2, number_axis(max(values), whole=True), found, "area")


def _lag_time(runs: list[list[Sample]]) -> Chart | None:
    found = _points(runs, lambda sample: sample.lag_ms, lambda sample: f"{span(sample.lag_ms or 0)} behind")
    values = [value for run in found for _, value, _ in run]
    if not values:
        return None
    note = f"at the end {span(values[-1])}, most {span(max(values))}"
    return _line("Lag in time", note, 5, span_axis(max(values)), found, "area")


def _watermark(runs: list[list[Sample]]) -> Chart | None:
    found = _points(runs, lambda sample: sample.watermark_ms, lambda sample: moment(sample.watermark_ms or 0))
    values = [int(value) for run in found for _, value, _ in run]
    if not values:
        return None
    low, high = min(values), max(values)
    axis = time_axis(low, high, 4)
    if not axis.ticks:
        axis = time_axis(low - 1000, high + 1000, 2)
    return _line("Watermark", f"event time, at the end {moment(values[-1])}", 3, axis, found, "line")


def _total(name: str, runs: list[list[Sample]]) -> Chart | None:
    found = _points(
        runs, lambda sample: sample.totals.get(name), lambda sample: plural(sample.totals.get(name, 0), "row")
    )
    values = [value for run in found for _, value, _ in run]
    if not values:
        return None
    axis = number_axis(max(values), whole=True)
    return _line(TOTALS.get(name, name), f"at the end {count(int(values[-1]))}", 3, axis, found, "steps")


def _line(title: str, note: str, color: int, axis: Axis, runs: list[list[Point]], kind: Kind) -> Chart:
    return Chart(title=title, note=note, kind=kind, color=color, axis=axis, runs=runs)


def _points(
    runs: list[list[Sample]], value: Callable[[Sample], int | None], words: Callable[[Sample], str]
) -> list[list[Point]]:
    found: list[list[Point]] = []
    for run in runs:
        stretch: list[Point] = []
        for sample in run:
            number = value(sample)
            if number is not None:
                said = f"{moment(sample.at_ms, '%H:%M:%S')}: {words(sample)}"
                stretch.append((sample.at_ms, float(number), said))
        if stretch:
            found.append(stretch)
    return found
