"""A consumer: partitions that it is told to read, or those that a group gives it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError, raise_first
from tidelog.client.fetcher import NO_TIME_S, Fetcher, OffsetReset
from tidelog.client.fetching import FetchLimits
from tidelog.client.group_offsets import Committed, commit_offsets, fetch_offsets
from tidelog.client.membership import Member, MembershipOptions
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.client.records import ConsumedRecord

_QUIET_COMMIT_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    group_id: str | None = None
    instance_id: str | None = None
    offset_reset: OffsetReset = "latest"
    """Where to begin without a committed offset, or when it is no longer in the log."""
    auto_commit_interval_ms: int | None = 5_000
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    limits: FetchLimits = field(default_factory=FetchLimits)


class Consumer:
    """Use `assign` or `subscribe`, then `poll`. An async context manager that leaves its group at the end."""

    def __init__(self, cluster: Cluster, options: ConsumerOptions | None = None) -> None:
        self._cluster = cluster
        self._options = options or ConsumerOptions()
        self._fetcher = Fetcher(cluster, self._options.limits, self._options.offset_reset)
        self._member: Member | None = None
        self._membership: asyncio.Task[None] | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._last_commit_s = cluster.clock.monotonic_s()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted(self._fetcher.positions))

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """As of the last fetch of each partition."""
        return self._fetcher.high_watermarks

    def position(self, at: TopicPartition) -> int:
        """The offset of the next record that `poll` will give."""
        return self._fetcher.positions[at]

    def seek(self, at: TopicPartition, offset: int) -> None:
        self._fetcher.seek(at, offset)

    async def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on (or from EARLIEST, LATEST)."""
        self._fetcher.assign(await self._resolve(offsets))

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Take part in the group, which hands out the partitions of the topics."""
        if self._options.group_id is None:
            raise ClientError("to subscribe, a consumer needs a group id; without one, assign partitions")
        options = MembershipOptions(
            group_id=self._options.group_id,
            topics=tuple(topics),
            instance_id=self._options.instance_id,
            session_timeout_ms=self._options.session_timeout_ms,
            rebalance_timeout_ms=self._options.rebalance_timeout_ms,
            heartbeat_interval_ms=self._options.heartbeat_interval_ms,
        )
        self._member = Member(self._cluster, options, self)
        self._membership = asyncio.create_task(self._member.run(), name=f"member of {options.group_id}")
        self._membership.add_done_callback(lambda _: self._fetcher.wake())

    async def poll(self, timeout_s: float = 1.0, max_records: int = 10_000) -> list[ConsumedRecord]:
        """Records as soon as there are some, at most max_records; none when the time is up."""
        await self._maybe_commit()
        deadline_s = self._cluster.clock.monotonic_s() + timeout_s
        while True:
            if self._membership is not None and self._membership.done():
                self._membership.result()
            left_s = deadline_s - self._cluster.clock.monotonic_s()
            records = await self._fetcher.next(max(left_s, 0.0), max_records)
            if records or left_s <= NO_TIME_S:
                return records

    async def commit(
        self, offsets: Mapping[TopicPartition, int] | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Commit the given offsets, or the positions of all partitions."""
        if self._options.group_id is None:
            raise ClientError("to commit, a consumer needs a group id")
        wanted = dict(self._fetcher.positions if offsets is None else offsets)
        changed = {at: Committed(offset) for at, offset in wanted.items() if self._committed.get(at) != offset}
        self._last_commit_s = self._cluster.clock.monotonic_s()
        member = self._member.membership if self._member is not None else None
        results = await commit_offsets(
            self._cluster, self._options.group_id, changed, member=member, timeout_s=timeout_s
        )
        raise_first(results.values())
        self._committed.update({at: committed.offset for at, committed in changed.items()})

    async def close(self) -> None:
        if self._membership is not None and self._member is not None:
            self._membership.cancel()
            await asyncio.gather(self._membership, return_exceptions=True)
            await self._commit_quietly()
            await self._member.leave()
            self._membership = None
        await self._fetcher.close()

    # What the membership calls

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        assert self._options.group_id is not None
        found = await fetch_offsets(self._cluster, self._options.group_id, partitions, require_stable=True)
        begin = EARLIEST if self._options.offset_reset == "earliest" else LATEST
        if self._options.offset_reset == "none" and len(found) < len(partitions):
            missing = sorted(set(partitions) - set(found))
            raise ClientError(f"group {self._options.group_id} has no committed offset for {missing[0]}")
        self._committed = {at: committed.offset for at, committed in found.items()}
        self._fetcher.assign(await self._resolve({at: self._committed.get(at, begin) for at in partitions}))

    async def revoked(self) -> None:
        await self._commit_quietly()
        self._fetcher.assign({})

    async def lost(self) -> None:
        self._fetcher.assign({})

    # Helpers

    async def _resolve(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        symbolic = {at: offset for at, offset in offsets.items() if offset < 0}
        found = await list_offsets(self._cluster, symbolic, isolation_level=self._options.limits.isolation_level)
        return {at: found[at].offset if at in found else offset for at, offset in offsets.items()}

    async def _maybe_commit(self) -> None:
        interval_ms = self._options.auto_commit_interval_ms
        if self._member is None or interval_ms is None:
            return
        if self._cluster.clock.monotonic_s() - self._last_commit_s >= interval_ms / 1000:
            await self._commit_quietly()

    async def _commit_quietly(self) -> None:
        """A commit that a rebalance or a dead broker prevents is made up by the next one, or the records come again."""
        if self._member is None or self._options.auto_commit_interval_ms is None:
            return
        try:
            await self.commit(timeout_s=_QUIET_COMMIT_S)
        except ClientError:
            return
