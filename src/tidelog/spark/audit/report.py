"""What an audit found: for programs, as JSON, and as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from tidelog.spark.audit.compare import FAULTS, Fault, Span, Tally
from tidelog.spark.audit.log import PartitionLog
from tidelog.spark.audit.text import aligned, counted
from tidelog.spark.audit.tier_report import TierReport
from tidelog.spark.audit.windows import window_name

NAMED_LINES: Final = 20
_PLACES: Final = ("TOPIC", "PARTITION", "OFFSETS", "BEHIND", "RECORDS")
_FAULTS: Final = tuple(fault.upper() for fault in FAULTS)


class Window(NamedTuple):
    topic: str
    begin_ms: int
    records: int
    rows: int

    @property
    def is_balanced(self) -> bool:
        return self.records == self.rows


@dataclass(frozen=True, slots=True)
class PartitionReport:
    log: PartitionLog
    tally: Tally
    earlier: int = 0
    """Rows of an earlier topic of that name, told by their times."""
    no_windows: str = ""
    """Why rows could not be compared by windows as well."""

    @property
    def is_balanced(self) -> bool:
        return self.tally.is_balanced and not self.log.stretch.has_lost_its_end


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    partitions: list[PartitionReport]
    windows: list[Window]
    window_ms: int
    outlets: tuple[str, ...] = ("lake",)
    """Where the rows are that records were compared with."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Topics of which nothing can be proved, and why."""
    table_rows: int = 0
    other_rows: int = 0
    """Rows of topics that were not audited."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Of dead letters: how many there are for each, most first."""
    tiers: TierReport | None = None
    """What producers and consumers have counted, where they were asked for."""

    @property
    def balanced(self) -> bool:
        """Whether every record that had to be in the table is there once, and nothing that must not be. A topic that
        cannot be judged is not balanced; nor is one with a tier that is off."""
        return self._has_landed and not (self.tiers is not None and self.tiers.off)

    @property
    def proved(self) -> bool:
        """Balanced, and every tier that was asked for has told: no window is unknown."""
        return self.balanced and not (self.tiers is not None and self.tiers.unknown)

    @property
    def verdict(self) -> Literal["balanced", "off", "unknown"]:
        return "balanced" if self.proved else "unknown" if self.balanced else "off"

    def fails(self, strict: bool) -> bool:
        return not (self.proved if strict else self.balanced)

    @property
    def _has_landed(self) -> bool:
        return (
            not self.unknown
            and all(one.is_balanced for one in self.partitions)
            and all(one.is_balanced for one in self.windows)
        )

    @property
    def missing(self) -> list[Span]:
        return self.spans("missing")

    @property
    def doubled(self) -> list[Span]:
        return self.spans("doubled")

    @property
    def surplus(self) -> list[Span]:
        return self.spans("surplus")

    def spans(self, fault: Fault) -> list[Span]:
        """The first ranges of each partition; `Tally.span_counts` has how many there are."""
        return [span for one in self.partitions for span in one.tally.spans[fault]]

    def total(self, name: str) -> int:
        return sum(getattr(one.tally, name) for one in self.partitions)

    def landed(self) -> dict[str, int]:
        """How many records are in each outlet."""
        return {
            name: sum(one.tally.by_outlet[index] for one in self.partitions) for index, name in enumerate(self.outlets)
        }

    # For people

    def table(self, *, named_lines: int = NAMED_LINES) -> str:
        parts = [aligned(self._columns(), [_row(one) for one in self.partitions])] if self.partitions else []
        notes = self.notes(named_lines)
        if notes:
            parts.append("\n".join(notes))
        off = [one for one in self.windows if not one.is_balanced]
        if off:
            rows = [
                (one.topic, window_name(one.begin_ms), one.records, one.rows, one.rows - one.records) for one in off
            ]
            shown = aligned(("TOPIC", "WINDOW", "RECORDS", "ROWS", "DIFFERENCE"), rows[:named_lines])
            more = len(rows) - named_lines
            parts.append(shown + (f"\nand {counted(more, 'more window')}" if more > 0 else ""))
        if self.reasons:
            parts.append(self._reasons(named_lines))
        parts.append(self.summary())
        if self.tiers is not None:
            parts.append(self.tiers.table(named_lines=named_lines))
        return "\n\n".join(parts)

    def _reasons(self, limit: int) -> str:
        ordered = sorted(self.reasons.items(), key=lambda one: (-one[1], one[0]))
        shown = aligned(("DEAD LETTERS", "REASON"), [(number, reason) for reason, number in ordered[:limit]])
        more = len(ordered) - limit
        return shown + (f"\nand {counted(more, 'more reason')}" if more > 0 else "")

    def _columns(self) -> tuple[str, ...]:
        """With several outlets one for each of them and one for all."""
        if len(self.outlets) == 1:
            return (*_PLACES, "ROWS", *_FAULTS)
        return (*_PLACES, *(name.upper() for name in self.outlets), "SUM", *_FAULTS)

    def summary(self) -> str:
        """One sentence, of the log and the table."""
        records, topics = self.total("records"), len({one.tally.topic for one in self.partitions})
        if self._has_landed:
            of_windows = (
                f", in {counted(len(self.windows), 'window')} of {self.window_ms / 1000:g} s" if self.windows else ""
            )
            landed = f"{counted(records, 'record')} of {counted(topics, 'topic')}"
            if len(self.outlets) == 1:
                return f"balanced: {landed} in the table once each{of_windows}"
            of_each = " + ".join(f"{number} {name}" for name, number in self.landed().items())
            return f"balanced: {landed} = {of_each}, once each{of_windows}"
        wrong = [f"{self.total(fault)} {fault}" for fault in FAULTS if self.total(fault)]
        off = sum(not one.is_balanced for one in self.windows)
        if off:
            wrong.append(f"{counted(off, 'window')} of {len(self.windows)} off")
        if cut := sum(one.log.stretch.has_lost_its_end for one in self.partitions):
            wrong.append(f"the log of {counted(cut, 'partition')} has lost its end")
        if self.unknown:
            wrong.append(f"{counted(len(self.unknown), 'topic')} unknown")
        return f"does not balance: {', '.join(wrong)}"

    def notes(self, named_lines: int = NAMED_LINES) -> list[str]:
        """What is wrong, by its offsets, and what could not be judged; a line each."""
        notes = [*self._fault_lines(named_lines), *self._cut_lines(), *self._unjudged_lines()]
        return notes + [f"{topic}: unknown: {reason}" for topic, reason in sorted(self.unknown.items())]

    def _fault_lines(self, limit: int) -> Iterator[str]:
        shown = 0
        for fault in FAULTS:
            for span in self.spans(fault)[: max(0, limit - shown)]:
                shown += 1
                yield _line(fault, span) + self._where(span)
        ranges = sum(sum(one.tally.span_counts.values()) for one in self.partitions)
        if ranges > shown:
            yield f"and {counted(ranges - shown, 'more range')}"

    def _where(self, span: Span) -> str:
        """Which outlets have the rows, where there are several."""
        found = [f"{rows} {name}" for rows, name in zip(span.by_outlet, self.outlets, strict=False) if rows]
        return f": {' + '.join(found)}" if found else ""

    def _cut_lines(self) -> Iterator[str]:
        for one in self.partitions:
            stretch = one.log.stretch
            if stretch.has_lost_its_end:
                yield (
                    f"{stretch.topic}-{stretch.partition}: landed up to {stretch.claimed - 1}, "
                    f"but the log ends before {stretch.log_end}: it has lost its end"
                )

    def _unjudged_lines(self) -> Iterator[str]:
        for one in self.partitions:
            reasons = (
                (one.tally.deleted, "before the log's start"),
                (one.tally.cleaned, "of records that the log's cleaner has taken since"),
                (one.tally.outside, "outside of the audited offsets"),
                (one.earlier, "of an earlier topic of that name"),
            )
            for rows, reason in reasons:
                if rows:
                    yield f"{one.tally.topic}-{one.tally.partition}: not judged: {counted(rows, 'row')} {reason}"
            if one.no_windows:
                yield f"{one.tally.topic}-{one.tally.partition}: not compared by windows: {one.no_windows}"

    # For programs

    def as_json(self) -> dict[str, Any]:
        return {
            "balanced": self.balanced,
            "table_rows": self.table_rows,
            "other_rows": self.other_rows,
            "outlets": list(self.outlets),
            "unknown": self.unknown,
            "partitions": [_as_json(one, self.outlets) for one in self.partitions],
            "window_ms": self.window_ms,
            "windows": [one._asdict() for one in self.windows],
            "reasons": dict(self.reasons),
            "tiers": None if self.tiers is None else self.tiers.as_json(),
        }


def _row(one: PartitionReport) -> tuple[object, ...]:
    tally, stretch = one.tally, one.log.stretch
    faults = (tally.missing, tally.doubled, tally.surplus)
    behind = stretch.stable_end - stretch.end
    by_outlet = tally.by_outlet if len(tally.by_outlet) > 1 else ()
    extent = _extent(stretch.start, stretch.end)
    return (tally.topic, tally.partition, extent, behind, tally.records, *by_outlet, tally.rows, *faults)


def _extent(start: int, end: int) -> str | None:
    return None if start >= end else str(start) if start + 1 == end else f"{start}..{end - 1}"


def _line(fault: Fault, span: Span) -> str:
    number = span.offsets
    copies = ""
    if fault == "doubled":
        number *= span.rows - 1
        copies = f", {span.rows} rows each" if span.rows > 2 else ""
    elif fault == "surplus":
        number *= span.rows
    return f"{span.topic}-{span.partition}: {_extent(span.first, span.last + 1)} {fault} ({number}{copies})"


def _as_json(one: PartitionReport, outlets: tuple[str, ...]) -> dict[str, Any]:
    tally, stretch = one.tally, one.log.stretch
    counts = ("records", "rows", "missing", "doubled", "surplus", "cleaned", "deleted", "outside")
    return {
        "topic": tally.topic,
        "partition": tally.partition,
        "log_start": stretch.log_start,
        "start": stretch.start,
        "end": stretch.end,
        "stable_end": stretch.stable_end,
        "log_end": stretch.log_end,
        "claimed": stretch.claimed,
        **{name: getattr(tally, name) for name in counts},
        "by_outlet": dict(zip(outlets, tally.by_outlet or [tally.rows], strict=True)),
        "earlier": one.earlier,
        "no_windows": one.no_windows or None,
        "ranges": {
            fault: {
                "count": tally.span_counts[fault],
                "first": [{"first": span.first, "last": span.last, "rows": span.rows} for span in tally.spans[fault]],
            }
            for fault in FAULTS
        },
    }
