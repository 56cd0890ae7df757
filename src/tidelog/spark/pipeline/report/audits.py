"""The audit on the page: a table of partitions where rows have coordinates, with every range that is wrong by its
offsets; the counts and a few rows by name where a flow was computed anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.spark.audit.windows import window_name
from tidelog.spark.pipeline.proof import Proof
from tidelog.spark.pipeline.report.facts import AuditFacts
from tidelog.spark.pipeline.report.figures import count
from tidelog.spark.pipeline.report.markup import Markup, join, tag
from tidelog.spark.pipeline.report.tables import Cell, table

if TYPE_CHECKING:
    from tidelog.spark.audit.report import PartitionReport
    from tidelog.spark.audit.tier_report import TierReport

NAMED_MAX: Final = 50
WINDOWS_MAX: Final = 60
_GRADES: Final = {"off": "bad", "unknown": "warn", "open": "warn", "balanced": "good"}
_WORDS: Final = {"off": "does not balance", "unknown": "unknown", "balanced": "balanced"}


def audit(one: AuditFacts) -> Markup:
    report = one.report
    if report is None:
        badge = tag("span", "could not be checked", class_="badge warn")
        return _card(one.flow, badge, tag("p", one.error, class_="soft"))
    if isinstance(report, Proof):
        return _proof(one.flow, report)
    grade, word = ("good", "balanced") if report.balanced else ("bad", "does not balance")
    rows = [_row(partition) for partition in report.partitions]
    notes = [tag("li", note, class_=None if report.balanced else "bad") for note in report.notes(NAMED_MAX)]
    return _card(
        one.flow,
        tag("span", word, class_=f"badge {grade}"),
        table(_heads(report.outlets), rows) if rows else None,
        tag("ul", *notes) if notes else None,
        tag("p", report.summary(), class_="soft small"),
        None if report.tiers is None else _tiers(report.tiers),
    )


def _heads(outlets: tuple[str, ...]) -> tuple[str, ...]:
    """The log on the left, all places where its records may be on the right, and their sum."""
    landed = ("Rows",) if len(outlets) == 1 else (*(name.capitalize() for name in outlets), "Sum")
    return ("Topic", "Partition", "Offsets", "Behind", "Records", *landed, "Missing", "Doubled", "Surplus", "")


def _proof(flow: str, proof: Proof) -> Markup:
    cells = [
        Cell(count(number), "num bad" if name in proof.faults and number else "num")
        for name, number in proof.counts.items()
    ]
    kind = "bad" if proof.verdict == "off" else None
    notes = [tag("li", note, class_=kind) for note in proof.notes(NAMED_MAX)]
    return _card(
        flow,
        tag("span", _WORDS[proof.verdict], class_=f"badge {_GRADES[proof.verdict]}"),
        table([name.capitalize() for name in proof.counts], [cells]) if cells else None,
        tag("ul", *notes) if notes else None,
        tag("p", proof.summary(), class_="soft small"),
    )


def _tiers(found: TierReport) -> Markup:
    """Window by window, the way of a record from left to right; what is wrong or unknown before the rest."""
    order = {"off": 0, "unknown": 1, "open": 2, "balanced": 3}
    chosen = sorted(found.windows, key=lambda one: (order[one.verdict], -one.begin_ms))[:WINDOWS_MAX]
    rows = [
        [
            Cell(one.topic),
            Cell(window_name(one.begin_ms), "time"),
            *(Cell(count(one.counts.get(tier)), "num") for tier in found.tiers),
            Cell(tag("span", one.verdict, class_=f"badge {_GRADES[one.verdict]}")),
            Cell("; ".join(one.reasons)),
        ]
        for one in sorted(chosen, key=lambda one: (one.topic, one.begin_ms))
    ]
    notes = [tag("li", note) for note in found.notes]
    wrong = any(one.verdict in ("off", "unknown") for one in found.windows)
    return tag(
        "details",
        tag("summary", found.summary()),
        table(("Topic", "Window", *(tier.capitalize() for tier in found.tiers), "", ""), rows) if rows else None,
        tag("ul", *notes) if notes else None,
        open="open" if wrong else None,  # what balances need not be looked at
    )


def _card(flow: str, badge: Markup, *parts: Markup | None) -> Markup:
    head = tag("div", tag("h3", flow), badge, class_="audit-head")
    return tag("div", head, join(*parts), class_="card")


def _row(one: PartitionReport) -> list[Cell]:
    tally, stretch = one.tally, one.log.stretch
    faults = (tally.missing, tally.doubled, tally.surplus)
    extent = "–" if stretch.start >= stretch.end else f"{stretch.start} … {stretch.end - 1}"
    by_outlet = tally.by_outlet if len(tally.by_outlet) > 1 else ()
    numbers = (stretch.stable_end - stretch.end, tally.records, *by_outlet, tally.rows)
    return [
        Cell(tally.topic),
        Cell(str(tally.partition), "num"),
        Cell(extent, "num"),
        *(Cell(count(number), "num") for number in numbers),
        *(Cell(count(number), "num bad" if number else "num") for number in faults),
        Cell("✓" if one.is_balanced else "✗", "num good" if one.is_balanced else "num bad"),
    ]
