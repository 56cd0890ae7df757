"""Keeps one long poll per broker under way for the assigned partitions, and hands out what arrives in order.

Owns the positions. A position moves when records are handed out, not when they arrive, so that it may be committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError, ClientError
from tidelog.client.fanout import Leaders
from tidelog.client.fetching import Fetched, FetchLimits, fetch_from
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.client.records import ConsumedRecord, read_out
from tidelog.protocol.errors import ErrorCode

OffsetReset = Literal["earliest", "latest", "none"]
Answer = Mapping[TopicPartition, Fetched | BrokerError]


@dataclass(slots=True)
class _Arrived:
    at: TopicPartition
    records: list[ConsumedRecord]
    next_offset: int
    taken: int = 0


NO_TIME_S: Final = 1e-6
"""What rounding may leave of a wait: a clock need not move for it, and one that is simulated does not."""


class Fetcher:
    def __init__(self, cluster: Cluster, limits: FetchLimits, offset_reset: OffsetReset) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self._cluster = cluster
        self._limits = limits
        self._offset_reset = offset_reset
        self._polls: dict[int, asyncio.Task[tuple[dict[TopicPartition, int], Answer]]] = {}
        self._arrived: deque[_Arrived] = deque()
        self._changed = asyncio.Event()
        self._failing_since_s: float | None = None

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """From now on these partitions, from these offsets on; what is under way for others is dropped."""
        self.positions = dict(positions)
        self._arrived.clear()
        self._changed.set()

    def seek(self, at: TopicPartition, offset: int) -> None:
        self.positions[at] = offset
        self._arrived = deque(one for one in self._arrived if one.at != at)
        self._changed.set()

    def wake(self) -> None:
        """Let a waiting `next` look again: the caller's circumstances changed."""
        self._changed.set()

    async def next(self, timeout_s: float, max_records: int) -> list[ConsumedRecord]:
        """Records as soon as there are some; none when the time is up or `wake` was called."""
        deadline_s = self._cluster.clock.monotonic_s() + timeout_s
        while True:
            records = self._take(max_records)
            if records:
                return records
            left_s = deadline_s - self._cluster.clock.monotonic_s()
            if left_s <= NO_TIME_S:
                return []
            await self._start_polls()
            self._changed.clear()
            woken = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait([woken, *self._polls.values()], timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            was_woken = woken.done()
            woken.cancel()
            await self._collect()
            if was_woken and not self._arrived:
                return []

    async def close(self) -> None:
        self.positions = {}
        polls = list(self._polls.values())
        self._polls.clear()
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)

    # Handing out

    def _take(self, max_records: int) -> list[ConsumedRecord]:
        taken: list[ConsumedRecord] = []
        while self._arrived and len(taken) < max_records:
            arrived = self._arrived[0]
            part = arrived.records[arrived.taken : arrived.taken + max_records - len(taken)]
            taken += part
            arrived.taken += len(part)
            if arrived.taken == len(arrived.records):
                self._arrived.popleft()
                self.positions[arrived.at] = arrived.next_offset
            else:
                self.positions[arrived.at] = arrived.records[arrived.taken].offset
        return taken

    # Polling

    async def _start_polls(self) -> None:
        """A request to each broker that has none under way, for its partitions of which nothing waits here."""
        busy = {one.at for one in self._arrived}
        idle = [at for at in self.positions if at not in busy]
        wanted: dict[int, dict[TopicPartition, int]] = {}
        failure: ClientError | None = None
        for at, place in (await Leaders(self._cluster).locate(idle)).items():
            if isinstance(place, ClientError):
                failure = place
                self._cluster.forget_topic(at.topic)
            elif at in self.positions:  # it may have been taken away while we looked
                wanted.setdefault(place, {})[at] = self.positions[at]
        for node, offsets in wanted.items():
            if node not in self._polls:
                self._polls[node] = asyncio.create_task(self._poll(node, offsets), name=f"fetch from {node}")
        if failure is not None:
            await self._tolerate(failure)

    async def _poll(self, node: int, offsets: dict[TopicPartition, int]) -> tuple[dict[TopicPartition, int], Answer]:
        return offsets, await fetch_from(self._cluster, node, offsets, self._limits)

    async def _collect(self) -> None:
        for node, poll in list(self._polls.items()):
            if not poll.done():
                continue
            del self._polls[node]
            try:
                offsets, answer = poll.result()
            except ClientError as error:
                for at in self.positions:
                    self._cluster.forget_topic(at.topic)
                await self._tolerate(error)
                continue
            for at, asked in offsets.items():
                if self.positions.get(at) == asked:  # else it was moved or taken away meanwhile
                    await self._arrive(at, asked, answer[at])

    async def _arrive(self, at: TopicPartition, asked: int, result: Fetched | BrokerError) -> None:
        if isinstance(result, BrokerError):
            if result.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._reset(at, result)
            else:
                self._cluster.forget_topic(at.topic)
                await self._tolerate(result)
            return
        self._failing_since_s = None
        self.high_watermarks[at] = result.high_watermark
        found = read_out(at, result, asked, self._limits.isolation_level)
        if found.records:
            self._arrived.append(_Arrived(at, found.records, found.next_offset))
        else:
            self.positions[at] = found.next_offset

    async def _reset(self, at: TopicPartition, error: BrokerError) -> None:
        if self._offset_reset == "none":
            raise error
        timestamp = EARLIEST if self._offset_reset == "earliest" else LATEST
        asked = self.positions.get(at)
        offset = (await list_offsets(self._cluster, {at: timestamp}))[at].offset
        if self.positions.get(at) == asked:
            self.positions[at] = offset

    async def _tolerate(self, error: ClientError) -> None:
        """Wait a little before the next attempt, unless the error is final or lasts too long."""
        now_s = self._cluster.clock.monotonic_s()
        self._failing_since_s = now_s if self._failing_since_s is None else self._failing_since_s
        if not error.is_retriable or now_s - self._failing_since_s > self._cluster.options.api_timeout_s:
            raise error
        await asyncio.sleep(self._cluster.options.backoff_s(0, self._cluster.random))
