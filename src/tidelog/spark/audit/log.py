"""What is in the log, as readers see it: whole partitions by their batches' headers, through Link.fetch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from tidelog.client.errors import BrokerError
from tidelog.protocol.errors import ErrorCode
from tidelog.spark.audit.batches import Asked, Held, held
from tidelog.spark.audit.coverage import HIDDEN, LOG, Coverage
from tidelog.spark.audit.errors import AuditError
from tidelog.spark.audit.ranges import Ranges, ranges
from tidelog.spark.audit.windows import WindowCounts
from tidelog.spark.client_config import Isolation
from tidelog.spark.link import Link

GAPS_MAX: Final = 1 << 22
"""Gaps of a cleaned partition that are kept (64 MiB) to leave the rows of cleaned records out of the windows."""
TIMED_MAX: Final = 1 << 26
"""Records of a topic that was created anew whose times are kept (1 GiB)."""
TELL_BYTES: Final = 1 << 28
Progress: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What of a partition is audited, decided before anything is read."""

    topic: str
    partition: int
    log_start: int
    start: int
    end: int
    stable_end: int
    """Up to which readers could read when the audit began."""
    log_end: int
    """Of everything, when the audit began."""
    claimed: int
    """Up to which the caller says that it landed; the same as `end` unless the log does not reach so far."""
    topic_id: str | None = None

    @property
    def has_lost_its_end(self) -> bool:
        """The log ends before what was landed from it: it was cut, and offsets may have been given out again."""
        return self.claimed > self.log_end


@dataclass(slots=True)
class PartitionLog:
    """What was found."""

    stretch: Stretch
    scope: Ranges
    """Offsets that were read: all from start to end, unless retention took some before they were."""
    deleted: Ranges
    """Below the log's start when it was read."""
    gaps: Ranges | None
    """Offsets in scope that no batch holds any more; None when there are too many to keep."""
    windows: Counter[int] = field(default_factory=Counter)
    batches: int = 0
    decoded: int = 0
    size_bytes: int = 0
    offsets: Any = None
    times: Any = None
    """Of every record, when they were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    isolation: Isolation = "read_committed"
    window_ms: int = 3_600_000
    every_time: bool = False
    every_record: bool = False


def read_partition(
    link: Link,
    stretch: Stretch,
    how: Reading,
    coverage: Coverage | None = None,
    index: int = 0,
    tell: Progress | None = None,
) -> PartitionLog:
    """Read the stretch; offsets go into the coverage under the partition's number."""
    reader = _Reader(link, stretch, how, coverage, index, tell)
    reader.run()
    return reader.result()


class _Reader:
    def __init__(
        self,
        link: Link,
        stretch: Stretch,
        how: Reading,
        coverage: Coverage | None,
        index: int,
        tell: Progress | None,
    ) -> None:
        self._link = link
        self._stretch = stretch
        self._how = how
        self._coverage = coverage
        self._index = index
        self._tell = tell
        self._told_bytes = 0
        self._windows = WindowCounts(how.window_ms)
        self._gaps = _Gaps(stretch.start)
        self._holes: list[tuple[int, int]] = []
        self._found = PartitionLog(stretch, ranges(), ranges(), None)
        self._offsets: list[Any] = []
        self._times: list[Any] = []
        self._timed = 0

    def run(self) -> None:
        position = self._stretch.start
        while position < self._stretch.end:
            try:
                for chunk in self._link.fetch(
                    self._stretch.topic,
                    self._stretch.partition,
                    position,
                    self._stretch.end,
                    self._how.isolation,
                    topic_id=self._stretch.topic_id,
                ):
                    self._take(held(chunk.data, chunk.aborted, self._asked(position), self._windows), len(chunk.data))
                    position = chunk.next_offset
                    self._maybe_tell(position)
                return
            except BrokerError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                position = self._overtaken(position, error)

    def _maybe_tell(self, position: int) -> None:
        if self._tell is not None and self._found.size_bytes - self._told_bytes >= TELL_BYTES:
            self._told_bytes = self._found.size_bytes
            self._tell(
                f"reading {self._stretch.topic}-{self._stretch.partition}: "
                f"at {position} of {self._stretch.start} to {self._stretch.end}"
            )

    def _asked(self, position: int) -> Asked:
        return Asked(
            position,
            self._stretch.end,
            self._how.isolation == "read_committed",
            self._how.every_time,
            self._how.every_record,
        )

    def _overtaken(self, position: int, error: BrokerError) -> int:
        """Retention deleted what was to be read next: what lies between is out of scope, as if it had gone before."""
        at = (self._stretch.topic, self._stretch.partition)
        log_start = self._link.earliest([at])[at]
        if log_start <= position:
            raise error  # beyond the log's end: it was cut, or it is another log
        resumed = min(log_start, self._stretch.end)
        self._holes.append((position, resumed))
        self._gaps.skip_to(resumed)
        return resumed

    def _take(self, part: Held, size: int) -> None:
        found = self._found
        found.batches += part.batches
        found.decoded += part.decoded
        found.size_bytes += size
        self._gaps.follow(part.visible, part.hidden)
        if self._coverage is not None:
            self._coverage.add(LOG, self._index, part.visible.starts, part.visible.ends)
            self._coverage.add(HIDDEN, self._index, part.hidden.starts, part.hidden.ends)
        if self._how.every_record:
            self._timed += len(part.offsets)
            if self._timed > TIMED_MAX:
                raise AuditError(
                    f"topic {self._stretch.topic} was created anew and has more than {TIMED_MAX} records in a "
                    "partition: they cannot be told from those of its earlier life; audit a shorter stretch"
                )
            self._offsets.append(part.offsets)
            self._times.append(part.times)

    def result(self) -> PartitionLog:
        found, stretch = self._found, self._stretch
        bounds = [stretch.start, *(place for hole in self._holes for place in hole), max(stretch.start, stretch.end)]
        found.scope = ranges(*zip(bounds[::2], bounds[1::2], strict=True))
        found.deleted = ranges((0, stretch.log_start), *self._holes)
        found.gaps = self._gaps.up_to(max(stretch.start, stretch.end))
        found.windows = self._windows.counts
        if self._how.every_record:
            found.offsets = np.concatenate([np.empty(0, np.int64), *self._offsets])
            found.times = np.concatenate([np.empty(0, np.int64), *self._times])
        return found


class _Gaps:
    """Offsets between what ascending batches hold."""

    def __init__(self, start: int) -> None:
        self._expected = start
        self._parts: list[tuple[Any, Any]] | None = []
        self._count = 0

    def follow(self, *held_ranges: Ranges) -> None:
        starts = np.concatenate([one.starts for one in held_ranges])
        if not len(starts):
            return
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.concatenate([one.ends for one in held_ranges])[order]
        before = np.concatenate([[self._expected], ends[:-1]])
        self._expected = int(ends[-1])
        is_gap = starts > before
        self._count += int(is_gap.sum())
        if self._count > GAPS_MAX:
            self._parts = None
        if self._parts is not None and is_gap.any():
            self._parts.append((before[is_gap], starts[is_gap]))

    def skip_to(self, offset: int) -> None:
        self._end(self._expected, offset)

    def up_to(self, end: int) -> Ranges | None:
        self._end(self._expected, end)
        if self._parts is None:
            return None
        empty = np.empty(0, np.int64)
        return Ranges(
            np.concatenate([empty, *(starts for starts, _ in self._parts)]),
            np.concatenate([empty, *(ends for _, ends in self._parts)]),
        )

    def _end(self, begin: int, end: int) -> None:
        if begin < end and self._parts is not None:
            self._parts.append((np.array([begin]), np.array([end])))
        self._expected = max(self._expected, end)
