"""What the clients of a simulation were told and what they saw, and the rules that it must obey.

What was acknowledged with acks=all is there, where it was said to be; what one reader saw every reader sees, for ever;
an offset has one value; no offset is skipped; an idempotent record is there once; one producer's records keep their
order; what was refused for lack of room is nowhere; the high watermark never goes back."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError, ClientError
from tidelog.client.fetching import FetchLimits, fetch
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, list_offsets
from tidelog.protocol.batch import crc_is_valid, iter_headers, iter_records
from tidelog.protocol.errors import ErrorCode
from tidelog.sim.disk import SimDisk

PARTITIONS = 3
TOPIC = "work"


def partitions() -> list[TopicPartition]:
    return [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]


@dataclass
class History:
    """The outcome of every write is ok (with an offset), refused (it did not happen) or unknown."""

    acknowledged: dict[TopicPartition, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    attempted: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    seen: dict[TopicPartition, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    commits: int = 0
    reads: int = 0
    errors: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How often clients heard of each error: a fault that nobody noticed proves nothing."""
    high_watermarks: dict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    log_starts: dict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    """How far retention came. A power cut may bring back some of what it took, with gaps in between."""

    def acknowledge(self, at: TopicPartition, base_offset: int, values: list[bytes]) -> None:
        for index, value in enumerate(values):
            self._one_value(self.acknowledged[at], at, base_offset + index, value)
            self._one_value(self.seen[at], at, base_offset + index, value)

    def read(self, at: TopicPartition, offset: int, value: bytes) -> None:
        assert value in self.attempted, f"{at}: offset {offset} holds {value!r}, which nobody wrote"
        assert value not in self.refused, f"{at}: offset {offset} holds {value!r}, which was refused"
        self._one_value(self.seen[at], at, offset, value)

    def failed(self, error: ClientError) -> None:
        self.errors[error.code.name if isinstance(error, BrokerError) else type(error).__name__] += 1

    def watermark(self, at: TopicPartition, offset: int, log_start: int) -> None:
        assert offset >= self.high_watermarks[at], f"{at}: the high watermark went back to {offset}"
        self.high_watermarks[at] = offset
        self.log_starts[at] = max(self.log_starts[at], log_start)

    def note_deleted(self, disk: SimDisk) -> None:
        """Segments that retention has renamed, the log perhaps not yet knowing of it."""
        for at in partitions():
            names = disk.names_of(f"/data/{at.topic}-{at.partition}")
            bases = sorted(int(name[:20]) for name in names if name.endswith((".log", ".log.deleted")))
            gone = {int(name[:20]) for name in names if name.endswith(".log.deleted")}
            ends = [after for base, after in pairwise(bases) if base in gone]
            self.log_starts[at] = max(self.log_starts[at], *ends, 0)

    @staticmethod
    def _one_value(known: dict[int, bytes], at: TopicPartition, offset: int, value: bytes) -> None:
        assert known.setdefault(offset, value) == value, f"{at}: offset {offset} was {known[offset]!r} and is {value!r}"


async def read_once(cluster: Cluster, history: History, at: TopicPartition, offset: int, *, max_wait_ms: int) -> int:
    """Read on from the offset; the next one."""
    limits = FetchLimits(max_wait_ms=max_wait_ms, partition_max_bytes=300)
    found = await fetch(cluster, at, offset, limits)
    history.watermark(at, found.high_watermark, found.log_start_offset)
    for position, header in iter_headers(found.records):
        batch = found.records[position : position + header.size]
        assert crc_is_valid(batch, header), f"{at}: a damaged batch was served"
        for record in iter_records(batch, header):
            if record.offset < offset:
                continue
            is_gap = record.offset != offset
            assert not is_gap or record.offset <= history.log_starts[at], f"{at}: {record.offset} follows {offset - 1}"
            offset = record.offset
            assert record.offset < found.high_watermark, f"{at}: offset {offset} is behind the high watermark"
            history.read(at, record.offset, record.value or b"")
            offset += 1
    return offset


async def read_to_end(cluster: Cluster, history: History, at: TopicPartition) -> tuple[int, int]:
    """(where the log starts, where it ends). Retention may still be at work: then once more from its new start."""
    while True:
        start = offset = (await list_offsets(cluster, dict.fromkeys([at], EARLIEST)))[at].offset
        try:
            while (following := await read_once(cluster, history, at, offset, max_wait_ms=0)) != offset:
                offset = following
        except BrokerError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
        else:
            return start, offset


async def check_all(cluster: Cluster, history: History, among: list[TopicPartition] | None = None) -> None:
    """The final reads: everything acknowledged is there, idempotent records once, in the order they were sent."""
    for at in partitions() if among is None else among:
        start, offset = await read_to_end(cluster, history, at)
        final = history.seen[at]
        assert offset == history.high_watermarks[at]
        for known, value in history.acknowledged[at].items():
            assert known < offset and final[known] == value, f"{at}: {value!r}, acknowledged at {known}, is lost"
        assert max(final, default=-1) < offset, f"{at}: offset {max(final)} was seen once and is gone"
        check_once_and_in_order(at, [final[known] for known in range(start, offset) if known in final])


def check_once_and_in_order(at: TopicPartition, values: list[bytes]) -> None:
    last: dict[bytes, tuple[int, int]] = {}
    for value in values:
        name, number, index, _ = value.split(b"/")
        place = (int(number), int(index))
        assert place > last.get(name, (-1, -1)), f"{at}: {value!r} is there twice or out of order"
        last[name] = place
