"""Stretches of partitions to tasks, and how much of what waits a micro-batch takes. Pure; as Spark's Kafka source."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from tidelog.spark.link import At

Range: TypeAlias = tuple[int, int]
"""From an offset to before another."""


class Part(NamedTuple):
    at: At
    start: int
    end: int


def split(ranges: Mapping[At, Range], *, at_least: int | None = None, records_max: int | None = None) -> list[Part]:
    """A part per range that is not empty; more where none may have more than `records_max`, or there are to be
    `at_least`, which large ranges then share in proportion."""
    full = [Part(at, start, end) for at, (start, end) in sorted(ranges.items()) if end > start]
    parts = [piece for part in full for piece in _cut(part, _pieces_of(part, records_max))]
    if at_least is None or len(parts) >= at_least or not parts:
        return parts
    total = sum(part.end - part.start for part in parts)
    return [piece for part in parts for piece in _cut(part, -(-at_least * (part.end - part.start) // total))]


def _pieces_of(part: Part, records_max: int | None) -> int:
    return 1 if records_max is None else math.ceil((part.end - part.start) / records_max)


def _cut(part: Part, pieces: int) -> Sequence[Part]:
    """The part in so many pieces, or as many as it has offsets, none larger than another by more than one."""
    count = part.end - part.start
    pieces = max(1, min(pieces, count))
    bounds = [part.start + count * number // pieces for number in range(pieces + 1)]
    return [Part(part.at, start, end) for start, end in pairwise(bounds)]


def limited(ranges: Mapping[At, Range], limit: float, weights: Mapping[At, float] | None = None) -> dict[At, int]:
    """Where each range ends when all together may have no more than `limit`, shared out in proportion to what each
    has: offsets, or by `weights` something that each offset has on average. A range that has something gets one offset
    at least, so that none starves."""
    each = {at: (weights or {}).get(at, 1.0) for at in ranges}
    sizes = {at: max(0, end - start) * each[at] for at, (start, end) in ranges.items()}
    total = sum(sizes.values())
    if total <= limit:
        return {at: end for at, (_, end) in ranges.items()}
    ends: dict[At, int] = {}
    for at, (start, end) in ranges.items():
        share = limit * sizes[at] / total / each[at]
        ends[at] = end if end <= start else min(end, start + max(1, math.floor(share)))
    return ends
