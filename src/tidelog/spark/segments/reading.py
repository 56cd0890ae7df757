"""The chunks of a stretch: from the segment files where they have it, from the broker where they do not."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from typing import Final

from tidelog.client.fetching import AbortedTransaction
from tidelog.client.metadata import TopicPartition
from tidelog.kernel.ports import Clock
from tidelog.runtime.clock import SystemClock
from tidelog.spark.client_config import Isolation
from tidelog.spark.link import Link
from tidelog.spark.pump import Chunk, Stretch
from tidelog.spark.segments.bounds import Bounds, Lineage
from tidelog.spark.segments.folder import Folder, Gap, find_folders
from tidelog.spark.segments.markers import Markers
from tidelog.spark.segments.segment import Piece
from tidelog.spark.segments.walk import Walk

PIECE_BYTES: Final = 2 << 20
"""Compressed to half, as much is: one portion of the decoder."""
_PROBE_BYTES: Final = 1
_LOG: Final = logging.getLogger(__name__)


class Source:
    """One folder: its walk, and what it needs to know of transactions."""

    def __init__(self, folder: Folder, lineage: Lineage, piece_bytes: int) -> None:
        self.walk = Walk(folder, piece_bytes)
        self._lineage = lineage
        self._ahead = Walk(folder, piece_bytes, check_crc=False)
        self._markers = Markers(self._ahead, lineage)

    def close(self) -> None:
        self.walk.close()
        self._ahead.close()
        self.walk.folder.close()

    def next(
        self, position: int, end: int, isolation: Isolation
    ) -> tuple[Piece, tuple[AbortedTransaction, ...]] | None:
        piece = self.walk.next(position, end)
        if piece is None:
            return None
        self._lineage.check(piece.batches)
        if isolation == "read_uncommitted":
            return piece, ()
        assert self.walk.segment is not None
        return piece, self._markers.aborted(piece, self.walk.segment)


class SegmentReader:
    """For one stretch: `chunks` gives what Link.fetch gives, and raises what it raises."""

    def __init__(
        self,
        link: Link,
        stretch: Stretch,
        directories: Sequence[str],
        isolation: Isolation,
        *,
        silence_s: float = 120.0,
        piece_bytes: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._link = link
        self._stretch = stretch
        self._directories = directories
        self._isolation: Isolation = isolation
        self._silence_s = silence_s
        self._piece_bytes = piece_bytes or PIECE_BYTES
        self._clock = clock or SystemClock()
        self.bytes_from_files = 0
        self.bytes_from_broker = 0
        self.reasons: list[str] = []
        """Why the broker was asked for records, each once."""

    def chunks(self) -> Iterator[Chunk]:
        sources = self._open()
        try:
            yield from self._chunks(sources)
        finally:
            for source in sources:
                source.close()
            self._tell()

    def _open(self) -> list[Source]:
        at, topic_id = self._stretch.at, self._stretch.topic_id
        if topic_id is None:
            self.reasons.append("the broker gives topics no ids, so nobody knows whether a directory is of this topic")
            return []
        folders, reason = find_folders(self._directories, at.topic, at.partition, topic_id)
        if not folders:
            self.reasons.append(reason)
        lineage = Lineage(self._link, at)
        return [Source(folder, lineage, self._piece_bytes) for folder in folders]

    def _chunks(self, sources: list[Source]) -> Iterator[Chunk]:
        at, position, end, topic_id = self._stretch
        if not sources or topic_id is None:
            yield from self._fetched(at, position, end)
            return
        bounds = Bounds(self._link, at, topic_id, self._clock)
        while position < end:
            bounds.check(position)
            try:
                found = self._next(sources, position, end)
            except Gap as gap:
                until = min(end, end if gap.until is None else max(gap.until, position + 1))
                for chunk in self._missing(at, position, until, str(gap)):
                    yield chunk
                    position = chunk.next_offset
                position = max(position, until)
                continue
            if found is None:
                return
            piece, aborted = found
            self.bytes_from_files += len(piece.data)
            position = piece.next_offset
            yield Chunk(piece.data, aborted, position, bounds.log_start_offset, piece.batches)

    def _next(
        self, sources: list[Source], position: int, end: int
    ) -> tuple[Piece, tuple[AbortedTransaction, ...]] | None:
        """From the first source that has it, which then stays the first."""
        gaps: list[Gap] = []
        for source in list(sources):
            try:
                found = source.next(position, end, self._isolation)
            except Gap as gap:
                gaps.append(gap)
                continue
            if source is not sources[0]:
                sources.remove(source)
                sources.insert(0, source)
            return found
        known = [gap.until for gap in gaps if gap.until is not None]
        raise Gap("; ".join(map(str, gaps)), min(known) if known else None)

    def _missing(self, at: TopicPartition, position: int, until: int, reason: str) -> Iterator[Chunk]:
        """What the files lack. Where the cleaner took all that was at the end of a segment there is nothing: one small
        fetch says so."""
        probe = self._fetched(at, position, until, _PROBE_BYTES)
        first = next(probe, None)
        probe.close()
        if first is None:
            return
        if reason not in self.reasons:
            self.reasons.append(reason)
        yield first
        yield from self._fetched(at, first.next_offset, until)

    def _fetched(
        self, at: TopicPartition, start: int, end: int, max_bytes: int | None = None
    ) -> Generator[Chunk, None, None]:
        for chunk in self._link.fetch(
            at.topic,
            at.partition,
            start,
            end,
            self._isolation,
            topic_id=self._stretch.topic_id,
            silence_s=self._silence_s,
            max_bytes=max_bytes,
        ):
            self.bytes_from_broker += len(chunk.data)
            yield chunk

    def _tell(self) -> None:
        if not self.bytes_from_broker:
            return
        at, start, end, _ = self._stretch
        more = f" (and {len(self.reasons) - 1} more reasons)" if len(self.reasons) > 1 else ""
        _LOG.warning(
            "read=segments: %d of %d bytes of %s-%d from offset %d to %d came from the broker: %s%s",
            self.bytes_from_broker,
            self.bytes_from_broker + self.bytes_from_files,
            at.topic,
            at.partition,
            start,
            end,
            self.reasons[0] if self.reasons else "unknown",
            more,
        )
