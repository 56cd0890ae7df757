"""A log, a clock and topics in memory, and a driver: what the broker is to the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

from tidelog.coordinator.group.config import GroupConfig
from tidelog.coordinator.group.coordinator import GroupCoordinator
from tidelog.coordinator.group.machine import GroupMachine
from tidelog.coordinator.outbox import Outbox
from tidelog.coordinator.runtime import CoordinatorRuntime
from tidelog.log.errors import LogError
from tidelog.protocol.batch import TRANSACTIONAL, RecordInput, build_batch, iter_records
from tidelog.protocol.errors import ErrorCode


class FakeClock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


class FakeLog:
    """`holds` keeps the high watermark where it is until `commit`."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.high_watermark = 0
        self.holds = False
        self.failure: ErrorCode | None = None
        self._waiting: list[tuple[int, Callable[[ErrorCode], None]]] = []

    @property
    def end_offset(self) -> int:
        return self.end

    def append(
        self, records: list[tuple[bytes, bytes | None]], wall_ms: int, producer: tuple[int, int] | None = None
    ) -> int:
        if self.failure is not None:
            raise LogError(self.failure)
        producer_id, epoch = producer or (-1, -1)
        batch = build_batch(
            [RecordInput(key, value, wall_ms) for key, value in records],
            base_offset=self.end,
            attributes=0 if producer is None else TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        self.add(batch)
        if not self.holds:
            self.high_watermark = self.end
        return self.end

    def add(self, batch: bytes | bytearray) -> None:
        self.batches.append(bytes(batch))
        self.end = [record.offset for record in iter_records(batch)][-1] + 1

    def when_committed(self, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        self._waiting.append((offset, callback))
        self._call_back()

    def commit(self) -> None:
        self.holds = False
        self.high_watermark = self.end
        self._call_back()

    def lose(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, callback in waiting:
            callback(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _call_back(self) -> None:
        ready = [entry for entry in self._waiting if entry[0] <= self.high_watermark]
        self._waiting = [entry for entry in self._waiting if entry[0] > self.high_watermark]
        for _, callback in ready:
            callback(ErrorCode.NONE)

    def read_all(self) -> Iterator[bytes]:
        yield from list(self.batches)

    def records(self) -> list[tuple[bytes, bytes | None]]:
        return [(record.key or b"", record.value) for batch in self.batches for record in iter_records(batch)]


@dataclass
class FakeTopics:
    partitions: dict[str, int] = field(default_factory=lambda: {"t": 4, "u": 4})

    def topic_id(self, name: str) -> bytes | None:
        return name.encode().rjust(16, b"\x01") if name in self.partitions else None

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name in self.partitions if self.topic_id(name) == topic_id), None)

    def has_partition(self, name: str, partition: int) -> bool:
        return 0 <= partition < self.partitions.get(name, 0)

    def partition_count(self, name: str) -> int:
        return self.partitions.get(name, 0)

    def names(self) -> Iterable[str]:
        return self.partitions.keys()

    def version(self) -> int:
        return len(self.partitions)


class World:
    """A coordinator that leads every partition, on virtual time."""

    def __init__(self, *, partitions: int = 1, seed: int = 1, **config: int) -> None:
        self.clock = FakeClock()
        self.topics = FakeTopics()
        self.config = GroupConfig(offsets_topic_num_partitions=partitions, **config)
        self.logs = [FakeLog() for _ in range(partitions)]
        self.random = Random(seed)
        self.epoch = 0
        self._replica_log: FakeLog | None = None
        self.start()

    @property
    def log(self) -> FakeLog:
        return self.logs[0]

    @property
    def machine(self) -> GroupMachine:
        return self.runtime.shards()[0].machine

    @property
    def runtime(self) -> CoordinatorRuntime[GroupMachine]:
        return self.groups.runtime

    def start(self) -> None:
        self.groups = GroupCoordinator(self.config, self.topics, self.clock, self.random, lambda: None)
        self.epoch += 1
        for partition, log in enumerate(self.logs):
            self.runtime.load(partition, self.epoch, log)
        self.settle()

    def restart(self) -> None:
        """As after a crash: nothing is told to anybody, and only the log is left."""
        self.start()

    def settle(self) -> None:
        """Poll as the loop does, until nothing is due."""
        while (deadline_ms := self.runtime.deadline_ms()) is not None and deadline_ms <= self.clock.ms:
            self.runtime.poll()

    def advance(self, ms: int) -> None:
        until = self.clock.ms + ms
        while (deadline_ms := self.runtime.deadline_ms()) is not None and deadline_ms <= until:
            self.clock.ms = max(self.clock.ms, deadline_ms)
            self.runtime.poll()
        self.clock.ms = until

    def replayed(self) -> GroupMachine:
        """Another machine that sees nothing but this one's log."""
        if self._replica_log is not self.log:
            self._replica, self._replica_log = GroupMachine(self.config, Random(0), Outbox(), self.topics), self.log
            self._replica_position = 0
        for batch in self.log.batches[self._replica_position :]:
            for record in iter_records(batch):
                decoded = self._replica.decode(record.key or b"", record.value)
                assert decoded is not None
                self._replica.replay(decoded, record.offset, -1)
        self._replica_position = len(self.log.batches)
        return self._replica
