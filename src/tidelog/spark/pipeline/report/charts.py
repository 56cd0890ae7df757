"""One chart as an SVG element: time from left to right, a measure upwards, marks for what befell the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from tidelog.spark.pipeline.report.figures import moment
from tidelog.spark.pipeline.report.markup import Markup, join, points, tag
from tidelog.spark.pipeline.report.scales import Axis, Scale, time_axis

WIDTH: Final = 540
HEIGHT: Final = 190
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 14, 26
DOTS_MAX: Final = 30

Kind = Literal["area", "line", "steps", "dots"]
Point = tuple[int, float, str]
"""When, how much, and in words."""


@dataclass(frozen=True, slots=True)
class Event:
    at_ms: int
    bad: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    title: str
    note: str
    kind: Kind
    color: int
    axis: Axis
    runs: Sequence[Sequence[Point]]
    """Unbroken stretches of points: between two there was nobody to measure."""


def draw(
    chart: Chart,
    begin_ms: int,
    end_ms: int,
    events: Sequence[Event],
    place: tuple[float, float] | None = None,
) -> Markup:
    """`place`: in a larger drawing, where its corner is."""
    times = time_axis(begin_ms, end_ms, 5)
    x = Scale(begin_ms, end_ms, LEFT, WIDTH - RIGHT)
    y = Scale(chart.axis.low, chart.axis.high, HEIGHT - BOTTOM, TOP)
    parts = [_grid(chart.axis, y), _times(times, x), *(_event(one, x) for one in events)]
    parts += [_stretch(chart, run, x, y) for run in chart.runs if run]
    if place is None:
        parts += [_hits(run, x, y) for run in chart.runs]
    else:
        return tag("g", *parts, transform=f"translate({place[0]:.1f} {place[1]:.1f})")
    return tag(
        "svg",
        tag("title", f"{chart.title}, {chart.note}"),
        *parts,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        class_="chart",
    )


def _grid(axis: Axis, y: Scale) -> Markup:
    parts = []
    for value, name in axis.ticks:
        at = y(value)
        parts.append(
            tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="base" if value == axis.low else "grid")
        )
        parts.append(tag("text", name, x=LEFT - 8, y=at + 3.5, class_="tick end"))
    return join(*parts)


def _times(axis: Axis, x: Scale) -> Markup:
    bottom = HEIGHT - BOTTOM
    parts = []
    for value, name in axis.ticks:
        at = x(value)
        parts.append(tag("line", x1=at, x2=at, y1=bottom, y2=bottom + 4, class_="base"))
        # A name at the rim stays within the picture.
        middle = min(max(at, LEFT + 10), WIDTH - RIGHT - 18)
        parts.append(tag("text", name, x=middle, y=bottom + 17, class_="tick middle"))
    return join(*parts)


def _event(event: Event, x: Scale) -> Markup:
    at = x(event.at_ms)
    name = tag("title", f"{moment(event.at_ms, '%H:%M:%S')} {event.text}")
    kind = "bad" if event.bad else "good"
    line = tag("line", x1=at, x2=at, y1=TOP, y2=HEIGHT - BOTTOM, class_=f"event {kind}")
    head = tag("path", d=f"M{at - 4:.1f} {TOP - 6}h8l-4 6z", class_=f"flag {kind}")
    return tag("g", name, line, head)


def _stretch(chart: Chart, run: Sequence[Point], x: Scale, y: Scale) -> Markup:
    places = [(x(at), y(value)) for at, value, _ in run]
    color, base = chart.color, y(chart.axis.low)
    parts: list[Markup] = []
    if chart.kind == "dots":
        parts += [tag("line", x1=a, x2=a, y1=base, y2=b, class_=f"stem c{color}") for a, b in places]
    else:
        line = _steps(places) if chart.kind == "steps" else places
        if chart.kind in ("area", "steps"):
            closed = [(line[0][0], base), *line, (line[-1][0], base)]
            parts.append(tag("polygon", points=points(closed), class_=f"area f{color}"))
        parts.append(tag("polyline", points=points(line), class_=f"line c{color}"))
    if chart.kind == "dots" or len(run) == 1 or (chart.kind == "line" and len(run) <= DOTS_MAX):
        parts += [tag("circle", cx=a, cy=b, r=2.5, class_=f"f{color}") for a, b in places]
    return tag("g", *parts)


def _hits(run: Sequence[Point], x: Scale, y: Scale) -> Markup:
    """Unseen places that tell their value to whoever points at them."""
    return join(
        *(
            tag("circle", tag("title", words), cx=x(at), cy=y(value), r=5, class_="hit")
            for at, value, words in run
            if words
        )
    )


def _steps(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """A total stays what it was until the next one is known."""
    found = [places[0]]
    for (_, before), (at, value) in pairwise(places):
        found += [(at, before), (at, value)]
    return found
