"""The head of the report as one drawing, for a README: no scripts, nothing foreign, light and dark by itself."""

from __future__ import annotations

from typing import Final

from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.report import charts, flow_charts, graph, style, summary
from tidelog.spark.pipeline.report.facts import Facts, FlowFacts
from tidelog.spark.pipeline.report.markup import Markup, join, tag

WIDTH: Final = 1160
MARGIN: Final = 28
CARD_GAP: Final = 16
FLOWS: Final = 2
CHARTS: Final = 2


def picture(facts: Facts) -> str:
    parts = [_head(facts)]
    top = 112.0
    tiles, top = _tiles(facts, top)
    drawn, top = _graph(facts, top)
    parts += [tiles, drawn]
    for one in _flows(facts):
        row, top = _charts(facts, one, top)
        parts.append(row)
    height = int(top + MARGIN - CARD_GAP)
    return (
        str(
            tag(
                "svg",
                tag("style", Markup(style.drawing())),
                tag("title", f"Report of the pipeline {facts.pipeline.name}"),
                tag("rect", x=0, y=0, width=WIDTH, height=height, rx=14, class_="back"),
                *parts,
                xmlns="http://www.w3.org/2000/svg",
                viewBox=f"0 0 {WIDTH} {height}",
                width=WIDTH,
                height=height,
            )
        )
        + "\n"
    )


def _flows(facts: Facts) -> list[FlowFacts]:
    """One of the ingest flows and one of the others, those that did the most."""

    def rows(one: FlowFacts) -> int:
        return sum(sample.rows for sample in one.samples)

    known = [one for one in facts.flows if one.samples]
    ingests = sorted((one for one in known if isinstance(one.flow, Ingest)), key=rows, reverse=True)
    others = sorted((one for one in known if not isinstance(one.flow, Ingest)), key=_richness, reverse=True)
    return [*ingests[:1], *others[:1]][:FLOWS]


def _richness(one: FlowFacts) -> tuple[bool, int]:
    return any(sample.watermark_ms is not None for sample in one.samples), len(one.samples)


def _head(facts: Facts) -> Markup:
    grade, verdict = facts.verdict()
    name = facts.pipeline.name
    at = MARGIN + len(name) * 15.5 + 18
    return join(
        tag("text", name, x=MARGIN, y=58, class_="big"),
        tag("rect", x=at, y=37, width=len(verdict) * 7.6 + 28, height=28, rx=14, class_=f"pill {grade}"),
        tag("text", verdict, x=at + 14, y=56, class_=f"pill-text {grade}"),
        tag("text", summary.when(facts), x=MARGIN, y=86, class_="when"),
    )


def _tiles(facts: Facts, top: float) -> tuple[Markup, float]:
    tiles = summary.tiles(facts)
    width = (WIDTH - 2 * MARGIN - CARD_GAP * (len(tiles) - 1)) / len(tiles)
    parts = []
    for number, (figure, what) in enumerate(tiles):
        x = MARGIN + number * (width + CARD_GAP)
        parts.append(tag("rect", x=x, y=top, width=width, height=68, rx=10, class_="frame"))
        parts.append(tag("text", figure, x=x + 16, y=top + 34, class_="figure"))
        parts.append(tag("text", what, x=x + 16, y=top + 54, class_="sub"))
    return tag("g", *parts), top + 68 + CARD_GAP


def _graph(facts: Facts, top: float) -> tuple[Markup, float]:
    drawn, width, height = graph.draw(facts)
    room = WIDTH - 2 * MARGIN - 36
    scale = min(1.0, room / width)
    shift = MARGIN + 18 + (room - width * scale) / 2
    frame = tag("rect", x=MARGIN, y=top, width=WIDTH - 2 * MARGIN, height=height * scale + 36, rx=10, class_="frame")
    moved = tag("g", drawn, transform=f"translate({shift:.1f} {top + 18:.1f}) scale({scale:.4f})")
    return join(frame, moved), top + height * scale + 36 + CARD_GAP


def _charts(facts: Facts, one: FlowFacts, top: float) -> tuple[Markup, float]:
    drawn = flow_charts.charts_of(facts, one)
    # Of an ingest flow the rate and the lag if it had any, of an aggregate what the others have not.
    chosen = drawn[-CHARTS:]
    if isinstance(one.flow, Ingest):
        telling = [chart for chart in drawn if any(value for run in chart.runs for _, value, _ in run)]
        chosen = sorted(telling, key=lambda chart: _PREFERRED.get(chart.title, 9))[:CHARTS]
    events = flow_charts.events_of(facts, one)
    width = (WIDTH - 2 * MARGIN - CARD_GAP * (CHARTS - 1)) / CHARTS
    parts = []
    for number, chart in enumerate(chosen):
        x = MARGIN + number * (width + CARD_GAP)
        inner = charts.draw(chart, facts.begin_ms, facts.end_ms, events, place=(x + 8, top + 34))
        parts += [
            tag("rect", x=x, y=top, width=width, height=charts.HEIGHT + 40, rx=10, class_="frame"),
            tag(
                "text",
                f"{one.flow.name}: {chart.title[:1].lower()}{chart.title[1:]}",
                x=x + 16,
                y=top + 24,
                class_="chart-title",
            ),
            tag("text", chart.note, x=x + width - 16, y=top + 24, class_="sub end"),
            inner,
        ]
    return tag("g", *parts), top + charts.HEIGHT + 40 + CARD_GAP


_PREFERRED: Final = {"Rows per second": 0, "Lag in records": 1}
