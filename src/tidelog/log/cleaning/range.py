"""How much of a log can be cleaned, and whether it is time: from where to where, the dirty part of it, its age.

Decides only, as Kafka's cleaner does. Everything before the first dirty offset has been cleaned before; the active
segment, what is too young, and what a transaction is not done with are left alone, in whole segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.log.config import LogConfig
from tidelog.log.segment import Segment


class CleanRange(NamedTuple):
    first_dirty_offset: int
    first_uncleanable_offset: int
    """Where a segment begins."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """max.compaction.lag.ms is over for a record."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        if not self.dirty_bytes or self.first_dirty_offset >= self.first_uncleanable_offset:
            return False
        return self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def clean_range(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    cleaned_to: int,
    log_start_offset: int,
    log_end_offset: int,
    stable_offset: int,
    now_ms: int,
) -> CleanRange:
    """`cleaned_to` is where the last cleaning ended, `stable_offset` where the first transaction begins that has not
    ended, the high watermark at the most."""
    first_dirty = cleaned_to if log_start_offset <= cleaned_to <= log_end_offset else log_start_offset
    dirty = [
        number
        for number in range(len(segments) - 1)
        if segments[number + 1].base_offset > first_dirty and segments[number].size
    ]
    limit = _first_uncleanable(segments, dirty, config, stable_offset, now_ms)
    dirty = [number for number in dirty if segments[number].base_offset < limit]
    return CleanRange(
        first_dirty,
        max(limit, first_dirty),
        sum(segment.size for segment in segments[:-1] if segment.base_offset < first_dirty),
        sum(segments[number].size for number in dirty),
        _is_overdue([segments[number] for number in dirty], config, now_ms),
    )


def _first_uncleanable(
    segments: Sequence[Segment], dirty: list[int], config: LogConfig, stable_offset: int, now_ms: int
) -> int:
    # An open transaction may yet be aborted: what it wrote must not take the place of anything.
    for number in dirty:
        segment = segments[number]
        if segments[number + 1].base_offset > stable_offset:
            return segment.base_offset
        if config.min_compaction_lag_ms > 0 and segment.max_timestamp > now_ms - config.min_compaction_lag_ms:
            return segment.base_offset
    return segments[-1].base_offset


def _is_overdue(dirty: list[Segment], config: LogConfig, now_ms: int) -> bool:
    until_ms = now_ms - config.max_compaction_lag_ms
    if until_ms <= 0:
        return False
    return any(0 < segment.first_timestamp() < until_ms for segment in dirty)
