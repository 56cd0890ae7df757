"""Where a group is to go on: every form of reset that kafka-consumer-groups knows, as a plan. Nothing is committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.group_offsets import Committed
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, OffsetAndTimestamp, list_offsets


@dataclass(frozen=True, slots=True)
class ToEarliest:
    pass


@dataclass(frozen=True, slots=True)
class ToLatest:
    pass


@dataclass(frozen=True, slots=True)
class ToCurrent:
    pass


@dataclass(frozen=True, slots=True)
class ToOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    by: int


@dataclass(frozen=True, slots=True)
class ToTime:
    timestamp: int


@dataclass(frozen=True, slots=True)
class ToGiven:
    """Offsets of a file."""

    offsets: Mapping[TopicPartition, int]


Target = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToTime | ToGiven


class Move(NamedTuple):
    at: TopicPartition
    current: int | None
    new: int
    warning: str | None = None


async def plan_reset(
    cluster: Cluster,
    target: Target,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, Committed],
) -> list[Move]:
    """A move for every partition, within what its log holds."""
    wanted = sorted(partitions)
    starts = await list_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(wanted, LATEST))
    by_time: Mapping[TopicPartition, OffsetAndTimestamp] = {}
    if isinstance(target, ToTime):
        by_time = await list_offsets(cluster, dict.fromkeys(wanted, target.timestamp))
    moves = []
    for at in wanted:
        start, end = starts[at].offset, ends[at].offset
        found = by_time[at].offset if at in by_time else -1
        current = committed[at].offset if at in committed else None
        moves.append(move(target, at, current, start, end, found))
    return moves


def move(target: Target, at: TopicPartition, current: int | None, start: int, end: int, by_time: int = -1) -> Move:
    """Where one partition goes. Without a record of the time or later: to the end."""
    match target:
        case ToEarliest():
            return Move(at, current, start)
        case ToLatest():
            return Move(at, current, end)
        case ToTime():
            return Move(at, current, by_time if by_time >= 0 else end)
        case ToCurrent():
            if current is None:
                return Move(at, None, end, "nothing is committed, so it goes to the end")
            return _clamped(at, current, current, start, end)
        case ToOffset(offset):
            return _clamped(at, current, offset, start, end)
        case ToGiven(offsets):
            return _clamped(at, current, offsets[at], start, end)
        case ShiftBy(by):
            if current is None:
                return Move(at, None, end, "nothing is committed that could be shifted, so it goes to the end")
            return _clamped(at, current, current + by, start, end)


def _clamped(at: TopicPartition, current: int | None, offset: int, start: int, end: int) -> Move:
    if offset < start:
        return Move(at, current, start, f"{offset} is before the first record, so it goes to {start}")
    if offset > end:
        return Move(at, current, end, f"{offset} is behind the last record, so it goes to {end}")
    return Move(at, current, offset)
