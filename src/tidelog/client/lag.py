"""How far a group is behind: in records, and in seconds by the age of the first record that it has not committed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError
from tidelog.client.fetching import FetchLimits, fetch
from tidelog.client.group_offsets import Committed
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, OffsetAndTimestamp, try_list_offsets
from tidelog.client.records import read_out

_AT_ONCE: Final = 16
_BATCHES_TRIED: Final = 20


class Lag(NamedTuple):
    committed: int | None
    end: int | None
    """The next offset of the partition; None when it cannot be asked (the topic is gone, say)."""

    records: int | None
    seconds: float | None
    """None when nothing is committed, or the record cannot be read."""


async def group_lag(
    cluster: Cluster, committed: Mapping[TopicPartition, Committed], partitions: Iterable[TopicPartition] = ()
) -> dict[TopicPartition, Lag]:
    """The lag of what is committed, and of further partitions that are not."""
    wanted = sorted({*committed, *partitions})
    starts, ends = await asyncio.gather(
        try_list_offsets(cluster, dict.fromkeys(wanted, EARLIEST)),
        try_list_offsets(cluster, dict.fromkeys(wanted, LATEST)),
    )
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(at: TopicPartition) -> Lag:
        async with room:
            return await _lag_of(cluster, at, committed.get(at), starts[at], ends[at])

    found = await asyncio.gather(*(one(at) for at in wanted))
    return dict(zip(wanted, found, strict=True))


async def _lag_of(
    cluster: Cluster,
    at: TopicPartition,
    committed: Committed | None,
    start: OffsetAndTimestamp | ClientError,
    end: OffsetAndTimestamp | ClientError,
) -> Lag:
    end_offset = None if isinstance(end, ClientError) else end.offset
    if committed is None:
        return Lag(None, end_offset, None, None)
    if end_offset is None:
        return Lag(committed.offset, None, None, None)
    behind = max(0, end_offset - committed.offset)
    if behind == 0:
        return Lag(committed.offset, end_offset, 0, 0.0)
    # What retention took away the group can no longer read: its next record is the first that is left.
    first = committed.offset if isinstance(start, ClientError) else max(start.offset, committed.offset)
    try:
        timestamp = await first_timestamp(cluster, at, first, end_offset)
    except ClientError:
        return Lag(committed.offset, end_offset, behind, None)
    if timestamp is None:
        return Lag(committed.offset, end_offset, behind, 0.0)
    return Lag(committed.offset, end_offset, behind, max(0.0, (cluster.clock.wall_ms() - timestamp) / 1000))


async def first_timestamp(cluster: Cluster, at: TopicPartition, offset: int, end: int) -> int | None:
    """The timestamp of the first record at an offset or behind it; None when there is none before the end (compaction
    and transaction markers leave offsets without records)."""
    limits = FetchLimits(max_wait_ms=0, min_bytes=0, max_bytes=1, partition_max_bytes=1)
    for _ in range(_BATCHES_TRIED):
        if offset >= end:
            return None
        fetched = await fetch(cluster, at, offset, limits)
        found = read_out(at, fetched, offset, 0)
        if found.records:
            return found.records[0].timestamp
        if found.next_offset == offset:
            return None
        offset = found.next_offset
    return None
