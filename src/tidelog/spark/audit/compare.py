"""What the log must have brought into the table against what is there. Pure: segments in, tallies and named ranges out.

    in scope, seen by readers       a row each: none is missing, a second one is doubled
    in scope, hidden from readers   no row: control records and aborted ones; a row there is surplus
    in scope, neither               the cleaner has taken the record since: a row may be there
    deleted                         below the log's start: rows may be there, and nothing tells how many there were
    outside                         in the log, but not in the bounds that were asked for: a flow may still be at it
    anything else                   offsets that the log has never given out: a row there is surplus

Rows are those of all outlets together: a record that is in the table and in the dead letters as well is doubled.
Two rows for one offset are doubled wherever they are: the outlets alone prove that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from tidelog.spark.audit.coverage import DELETED, HIDDEN, LOG, OUTSIDE, SCOPE, Segments

Fault = Literal["missing", "doubled", "surplus"]
FAULTS: Final[tuple[Fault, ...]] = ("missing", "doubled", "surplus")
NAMED_MAX: Final = 1000
"""Ranges of each fault that are kept for each partition; more are counted."""


class Span(NamedTuple):
    """Offsets first to last that have the same fault."""

    topic: str
    partition: int
    first: int
    last: int
    rows: int
    """That each of them has in the table, or in all outlets."""
    by_outlet: tuple[int, ...] = ()
    """Of these, in each outlet, where there are several."""

    @property
    def offsets(self) -> int:
        return self.last - self.first + 1


@dataclass(slots=True)
class Tally:
    """Of one partition. Records and rows, not offsets; doubled are the rows beyond the first."""

    topic: str
    partition: int
    records: int = 0
    """In the log and in scope, as readers see it."""
    rows: int = 0
    """In the table for these records, or in all outlets."""
    by_outlet: list[int] = field(default_factory=list)
    """Of these, in each outlet."""
    missing: int = 0
    doubled: int = 0
    surplus: int = 0
    cleaned: int = 0
    """Rows of records that the log's cleaner has taken since."""
    deleted: int = 0
    """Rows below the log's start."""
    outside: int = 0
    """Rows in the log but not in the bounds."""
    spans: dict[Fault, list[Span]] = field(default_factory=lambda: {fault: [] for fault in FAULTS})
    span_counts: dict[Fault, int] = field(default_factory=lambda: dict.fromkeys(FAULTS, 0))

    @property
    def is_balanced(self) -> bool:
        return not (self.missing or self.doubled or self.surplus)


def compare(
    segments: Iterable[Segments], partitions: list[tuple[str, int]], *, outlets: int = 1, named_max: int = NAMED_MAX
) -> list[Tally]:
    """A tally for each partition, in their order; segments name them by their place in it."""
    tallies = [Tally(topic, partition, by_outlet=[0] * outlets) for topic, partition in partitions]
    for portion in segments:
        bounds = [*np.flatnonzero(np.diff(portion.at)) + 1, len(portion.at)]
        first = 0
        for last in bounds:
            _add(tallies[int(portion.at[first])], Segments(*(column[first:last] for column in portion)), named_max)
            first = last
    return tallies


def _add(tally: Tally, part: Segments, named_max: int) -> None:
    rows = part.rows
    offsets = part.end - part.start
    in_scope = part.has(SCOPE)
    in_log = in_scope & part.has(LOG)
    hidden = in_scope & part.has(HIDDEN)
    cleaned = in_scope & ~in_log & ~hidden
    deleted, outside = part.has(DELETED), part.has(OUTSIDE)
    surplus = (hidden | ~(in_scope | deleted | outside)) & (rows > 0)
    missing = in_log & (rows == 0)
    doubled = (rows > 1) & ~surplus

    def total(which: Any, numbers: Any) -> int:
        return int(numbers[which].sum())

    tally.records += total(in_log, offsets)
    tally.rows += total(in_log, rows * offsets)
    for outlet in range(len(tally.by_outlet)):
        tally.by_outlet[outlet] += total(in_log, part.rows_in(outlet) * offsets)
    tally.missing += total(missing, offsets)
    tally.doubled += total(doubled, (rows - 1) * offsets)
    tally.surplus += total(surplus, rows * offsets)
    tally.cleaned += total(cleaned, rows * offsets)
    tally.deleted += total(deleted, rows * offsets)
    tally.outside += total(outside, rows * offsets)
    _name(tally, "missing", missing, part, named_max)
    _name(tally, "doubled", doubled, part, named_max)
    _name(tally, "surplus", surplus, part, named_max)


def _name(tally: Tally, fault: Fault, which: Any, part: Segments, named_max: int) -> None:
    """Neighbours of the same number of rows in each outlet are one range, also where what surrounds them differs."""
    index = np.flatnonzero(which)
    if not len(index):
        return
    spans = tally.spans[fault]
    start, end, landed = part.start[index], part.end[index], part.landed[index]
    goes_on = (start[1:] == end[:-1]) & (landed[1:] == landed[:-1])
    first = np.flatnonzero(np.concatenate([[True], ~goes_on]))
    last = np.append(first[1:], len(index)) - 1
    room = 1 + max(0, named_max - len(spans))
    found = [_span(tally, part, index[one], int(end[other])) for one, other in zip(first[:room], last, strict=False)]
    skipped = 0
    if tally.span_counts[fault] == len(spans) and spans:
        before = spans[-1]
        if before.last + 1 == found[0].first and before[4:] == found[0][4:]:
            spans[-1] = before._replace(last=found[0].last)
            skipped = 1
    tally.span_counts[fault] += len(first) - skipped
    spans += found[skipped:][: max(0, named_max - len(spans))]


def _span(tally: Tally, part: Segments, index: int, end: int) -> Span:
    outlets = len(tally.by_outlet)
    one = Segments(*(column[index : index + 1] for column in part))
    by_outlet = tuple(int(one.rows_in(outlet)[0]) for outlet in range(outlets)) if outlets > 1 else ()
    return Span(tally.topic, tally.partition, int(one.start[0]), end - 1, int(one.rows[0]), by_outlet)
