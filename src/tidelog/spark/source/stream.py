"""The reader of `spark.readStream`: how far each micro-batch goes, and what became of the log since the last one.

Spark keeps one in a planner's process for as long as the query runs, and pickles another one, without a link, for the
workers. The offsets that it hands out are in the checkpoint; nothing else outlives the process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from tidelog.client.errors import ClientError
from tidelog.client.offsets import LATEST
from tidelog.runtime.clock import SystemClock
from tidelog.spark.link import At, Link
from tidelog.spark.offsets import BEHIND, Offsets, names
from tidelog.spark.source.behind import Sizes, behind
from tidelog.spark.source.options import Everywhere, OptionError, SourceOptions
from tidelog.spark.source.splitting import Range, limited
from tidelog.spark.source.tasks import pieces, read_piece
from tidelog.spark.source.view import View

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # no types in pyspark
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._starting = options.starting_for("stream")
        self._clock = SystemClock()
        self._view: View | None = None
        self._sizes: Sizes | None = None
        self._initial: dict[str, Any] | None = None
        self._target: Offsets | None = None
        """With Trigger.AvailableNow: where the query ends."""
        self._latest: Offsets | None = None
        self._planned: Offsets | None = None
        self._taken_s: float | None = None
        """When a micro-batch last took something."""
        self._published: Offsets | None = None

    # Spark's questions, in the order in which it asks them

    def initialOffset(self) -> dict[str, Any]:
        view = self._open()
        every = view.partitions()
        offsets = Offsets(view.starts(self._starting, every, view.latest(every)), view.ids(every))
        self._initial = offsets.to_json()
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        view = self._open()
        every = view.existing_partitions()
        self._target = Offsets(view.latest(every), view.ids(every))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Only to tell a trigger that wants everything (Trigger.Once) from the others: what is allowed is in the
        options, and more than one limit cannot be said here."""
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable() if options.min_offsets is None else ReadMinRows(options.min_offsets)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if start == self._initial and self._starting == Everywhere(LATEST):
            # The first micro-batch of a query that starts at the end is empty. If it had records and died, the query
            # would ask anew where the end is, find it behind them, and never read them.
            self._initial = None
            return start
        view = self._open()
        begin = Offsets.from_json(start)
        self._publish(begin)
        latest = self._now(view)
        self._latest = latest
        starts = self._starts(view, begin, latest, report=True)
        ends = self._reachable(latest, starts)
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(view, starts, ends)
        self._planned = Offsets(ends, latest.ids)
        return self._planned.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        view = self._open()
        wanted = Offsets.from_json(end)
        every = set(view.existing_partitions())
        if gone := set(wanted.at).difference(every):
            view.lose(f"{names(gone)} was deleted before it was read")
        ids = view.ids(every)
        for topic in sorted({topic for topic, _ in every}):
            if wanted.is_other_topic(topic, ids):
                view.lose(f"topic {topic} was deleted and created again before it was read, its id is {ids[topic]}")
                every = {at for at in every if at[0] != topic}
        kept = {at: offset for at, offset in wanted.at.items() if at in every}
        starts = self._starts(view, Offsets.from_json(start), Offsets(kept, wanted.ids), report=False)
        ranges = {at: (starts[at], kept[at]) for at in kept if starts[at] < kept[at]}
        return list(pieces(self._trimmed(view, ranges), wanted.ids, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(partition)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The log's end as it was last seen, and how far the query is behind it."""
        if self._latest is None or self._planned is None:
            return None
        per_offset = self._sizes.ask(self._latest.at) if self._sizes is not None else {}
        return self._latest.to_json() | {BEHIND: behind(self._latest.at, self._planned.at, per_offset)}

    def stop(self) -> None:
        if self._view is not None:
            self._view.link.close()
            self._view = None

    # Parts

    def _open(self) -> View:
        if self._view is None:
            self._view = View(Link(self._options.kafka), self._options)
            self._sizes = Sizes(self._view, self._clock)
        return self._view

    def _now(self, view: View) -> Offsets:
        every = view.existing_partitions()
        return Offsets(view.latest(every), view.ids(every))

    def _starts(self, view: View, begin: Offsets, now: Offsets, *, report: bool) -> dict[At, int]:
        """Where each partition that there is now goes on: what is new, or of another topic of the same name, at its
        earliest offset. `report` says what was lost, once for a micro-batch."""
        starts: dict[At, int] = {}
        fresh: list[At] = []
        for at in now.at:
            if at not in begin.at or begin.is_other_topic(at[0], now.ids):
                fresh.append(at)
            else:
                starts[at] = begin.at[at]
        if report:
            self._report(view, begin, now)
        return starts | view.earliest(fresh)

    def _report(self, view: View, begin: Offsets, now: Offsets) -> None:
        for topic in sorted({topic for topic, _ in now.at}):
            if begin.is_other_topic(topic, now.ids):
                ids = f"its id was {begin.ids[topic]} and is {now.ids[topic]}"
                view.lose(f"topic {topic} was deleted and created again: {ids}")
        if gone := set(begin.at).difference(now.at):
            view.lose(f"{names(gone)} was deleted")
        for at, offset in now.at.items():
            if at in begin.at and begin.at[at] > offset and not begin.is_other_topic(at[0], now.ids):
                view.lose(f"{names([at])} ends at {offset}, before offset {begin.at[at]} that was read already")

    def _reachable(self, latest: Offsets, starts: Mapping[At, int]) -> dict[At, int]:
        """The ends, with Trigger.AvailableNow those of its beginning: what is new since then waits for the next run."""
        if self._target is None:
            return dict(latest.at)
        return {
            at: max(starts[at], min(end, self._target.at[at])) if at in self._target.at else starts[at]
            for at, end in latest.at.items()
        }

    def _limited(self, view: View, starts: Mapping[At, int], ends: dict[At, int]) -> dict[At, int]:
        options = self._options
        ranges: dict[At, Range] = {at: (starts[at], end) for at, end in ends.items()}
        waiting = sum(max(0, end - start) for start, end in ranges.values())
        now_s = self._clock.monotonic_s()
        if options.min_offsets is not None and waiting < options.min_offsets and self._target is None:
            waited_ms = None if self._taken_s is None else (now_s - self._taken_s) * 1000
            if waited_ms is not None and waited_ms < options.max_delay_ms:
                return dict(starts)
        if waiting:
            self._taken_s = now_s
        if options.max_offsets is not None:
            ends = limited(ranges, options.max_offsets)
        if options.max_bytes is not None and self._sizes is not None:
            weights = self._sizes.ask(ranges)
            by_bytes = limited(ranges, options.max_bytes, weights)
            ends = {at: min(end, by_bytes[at]) for at, end in ends.items()}
        return ends

    def _trimmed(self, view: View, ranges: dict[At, Range]) -> dict[At, Range]:
        """Without what retention took meanwhile."""
        earliest = view.earliest(ranges)
        lost = {at: (start, earliest[at]) for at, (start, _) in ranges.items() if earliest[at] > start}
        for at, (start, first) in sorted(lost.items()):
            view.lose(
                f"{names([at])} begins at offset {first}: {start} to {first - 1} were deleted before they were read"
            )
        return {at: (max(start, earliest[at]), end) for at, (start, end) in ranges.items() if end > earliest[at]}

    # Progress for Kafka's tools

    def _publish(self, begin: Offsets) -> None:
        """Commit where the query is. Spark asks for the next micro-batch when the one before is done, so all before
        `begin` was processed; its own commit() leaves out the last micro-batch of Trigger.AvailableNow."""
        group = self._options.commit_group
        if group is None or not begin.at or begin == self._published:
            return
        try:
            self._open().link.commit(group, begin.at)
        except ClientError as error:
            if self._published is None and not error.is_retriable:
                # At the start: a group that takes no commits shows at once, not as a lag that stands still.
                raise OptionError(f"commitGroup={group}: {error}; it must be a group without members") from error
            # The checkpoint is what counts; the next micro-batch commits again.
            _LOG.warning("progress could not be committed to the group %s: %s", group, error)
        else:
            self._published = begin
