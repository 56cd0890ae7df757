"""Fetches one stretch of a partition chunk by chunk, ahead of who uses it. Runs on a Link's loop."""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import Final, NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError
from tidelog.client.fetching import AbortedTransaction, FetchLimits, fetch
from tidelog.client.metadata import TopicPartition
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.batch import HEADER_SIZE, LOG_OVERHEAD
from tidelog.protocol.records import Batches
from tidelog.protocol.uuids import ZERO_UUID, uuid_to_text

_OFFSET_AND_LENGTH: Final = Struct(">qi")
_LAST_OFFSET_DELTA: Final = Struct(">i")
_LAST_OFFSET_DELTA_AT: Final = 23
AHEAD: Final = 2
"""Chunks that wait: more would only take memory, as one is enough to keep the user busy."""


class TopicChangedError(ClientError):
    """The topic was deleted and created again: the offsets that were asked for are of another log."""

    def __init__(self, at: TopicPartition, wanted: str, found: str) -> None:
        super().__init__(f"topic {at.topic} was deleted and created again: its id was {wanted} and is {found}")


class SilentError(ClientError):
    """Nothing arrived for so long, though there is something to come."""


class Stretch(NamedTuple):
    at: TopicPartition
    start: int
    end: int
    topic_id: str | None = None


class Chunk(NamedTuple):
    """Whole record batches as they lie in the log."""

    data: memoryview
    aborted: tuple[AbortedTransaction, ...]
    """Those that reach into this chunk, for client.aborted.Aborted; empty for read_uncommitted."""
    next_offset: int
    """Behind the last batch."""
    log_start_offset: int
    batches: Batches | None = None
    """Their headers, when somebody has read them and checked the CRCs already."""


class Pump:
    def __init__(self, cluster: Cluster, stretch: Stretch, limits: FetchLimits, silence_s: float) -> None:
        self._cluster = cluster
        self._stretch = stretch
        self._limits = limits
        self._silence_s = silence_s
        self._chunks: asyncio.Queue[Chunk] = asyncio.Queue(AHEAD)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"fetch {self._stretch.at}")

    async def next(self) -> Chunk | None:
        """The next chunk, None at the end; what stopped the fetching is raised when all before it was handed out."""
        assert self._task is not None
        if self._chunks.empty() and not self._task.done():
            arriving = asyncio.ensure_future(self._chunks.get())
            await asyncio.wait([arriving, self._task], return_when=asyncio.FIRST_COMPLETED)
            if arriving.done():
                return arriving.result()
            arriving.cancel()
        if not self._chunks.empty():
            return self._chunks.get_nowait()
        self._task.result()
        return None

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        at, position, end, topic_id = self._stretch
        heard_s = self._cluster.clock.monotonic_s()
        while position < end:
            fetched = await fetch(self._cluster, at, position, self._limits)
            if topic_id is not None:
                self._check_id(at, topic_id)
            size, next_offset = _whole(fetched.records, position, end)
            now_s = self._cluster.clock.monotonic_s()
            if next_offset > position:
                heard_s = now_s
                position = next_offset
                if size:
                    data = fetched.records[:size].toreadonly()
                    await self._chunks.put(Chunk(data, fetched.aborted, next_offset, fetched.log_start_offset))
            elif now_s - heard_s > self._silence_s:
                raise SilentError(
                    f"partition {at.partition} of topic {at.topic}: nothing from offset {position} on arrived for "
                    f"{self._silence_s:g} s, though the log reaches to {end}"
                )

    def _check_id(self, at: TopicPartition, wanted: str) -> None:
        found = self._cluster.metadata.topic(at.topic).topic_id
        if found != ZERO_UUID and uuid_to_text(found) != wanted:
            raise TopicChangedError(at, wanted, uuid_to_text(found))


def _whole(records: memoryview, position: int, end: int) -> tuple[int, int]:
    """(bytes in whole batches that begin before end, the offset behind them)."""
    at, size = 0, len(records)
    while at + HEADER_SIZE <= size:
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(records, at)
        if length < HEADER_SIZE - LOG_OVERHEAD:
            raise ProtocolError(f"a batch of {length} bytes is smaller than its own header")
        if base_offset >= end:
            # A gap of compaction reaches over the end.
            return at, max(position, end)
        if at + LOG_OVERHEAD + length > size:
            break
        position = max(
            position, base_offset + _LAST_OFFSET_DELTA.unpack_from(records, at + _LAST_OFFSET_DELTA_AT)[0] + 1
        )
        at += LOG_OVERHEAD + length
    return at, position
