"""Dead letters on the page: for each flow how many there are by reason, as bars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.spark.pipeline.report.facts import Facts
from tidelog.spark.pipeline.report.figures import count, plural
from tidelog.spark.pipeline.report.markup import Markup, join, tag

REASONS_MAX: Final = 12
WIDTH: Final = 540
ROW: Final = 34
BAR: Final = 10


def letters(facts: Facts) -> Markup | None:
    """Nothing where no flow has any."""
    found = facts.reasons()
    if not found:
        return None
    cards = [_card(flow, reasons) for flow, reasons in found.items()]
    return join(tag("h2", "Dead letters by reason"), tag("div", *cards, class_="charts"))


def _card(flow: str, reasons: Mapping[str, int]) -> Markup:
    rows = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    if len(rows) > REASONS_MAX:
        rest = sum(number for _, number in rows[REASONS_MAX - 1 :])
        rows = [*rows[: REASONS_MAX - 1], (f"{len(rows) - REASONS_MAX + 1} other reasons", rest)]
    note = plural(sum(reasons.values()), "letter")
    head = tag("div", tag("h3", flow), tag("span", note), class_="chart-head")
    return tag("div", head, bars(f"Dead letters of {flow} by reason", rows), class_="card")


def bars(title: str, rows: list[tuple[str, int]]) -> Markup:
    """A bar for each, as long as its number."""
    most = max((number for _, number in rows), default=0) or 1
    parts = []
    for place, (name, number) in enumerate(rows):
        top = place * ROW
        parts += [
            tag("text", _cut(name), tag("title", name), x=0, y=top + 13, class_="tick"),
            tag("text", count(number), x=WIDTH, y=top + 13, class_="tick end"),
            tag("rect", x=0, y=top + 18, width=WIDTH, height=BAR, rx=3, class_="track"),
            tag("rect", x=0, y=top + 18, width=max(2.0, WIDTH * number / most), height=BAR, rx=3, class_="f2"),
        ]
    box = f"0 0 {WIDTH} {max(ROW, len(rows) * ROW)}"
    return tag("svg", tag("title", title), *parts, viewBox=box, role="img", class_="bars")


def _cut(name: str) -> str:
    return name if len(name) <= 70 else name[:69] + "…"
