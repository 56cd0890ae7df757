"""A transaction coordinator on virtual time, with a log, markers and producer ids in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.unit.coordinator.fakes import FakeClock, FakeLog
from tidelog.coordinator.txn.config import TransactionConfig
from tidelog.coordinator.txn.coordinator import Client, TransactionCoordinator
from tidelog.coordinator.txn.machine import TransactionMachine
from tidelog.coordinator.txn.ports import TopicPartition
from tidelog.coordinator.txn.records import TransactionValue
from tidelog.coordinator.txn.transaction import Ended, ProducerName
from tidelog.log.transactions import Marker
from tidelog.protocol.errors import ErrorCode

T0: TopicPartition = ("t", 0)
T1: TopicPartition = ("t", 1)
ID = "x"


class FakeMarkers:
    """Written at once, unless `holds` keeps them until `release`."""

    def __init__(self) -> None:
        self.written: list[tuple[Marker, TopicPartition]] = []
        self.sent = 0
        self.holds = False
        self.failures: dict[TopicPartition, ErrorCode] = {}
        self._held: list[tuple[Marker, tuple[TopicPartition, ...], Callable[[dict[TopicPartition, ErrorCode]], None]]]
        self._held = []

    def write(
        self,
        marker: Marker,
        partitions: Sequence[TopicPartition],
        done: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        self.sent += 1
        self._held.append((marker, tuple(partitions), done))
        if not self.holds:
            self.release()

    def release(self) -> None:
        held, self._held = self._held, []
        for marker, partitions, done in held:
            codes = {at: self.failures.get(at, ErrorCode.NONE) for at in partitions}
            self.written.extend((marker, at) for at, code in codes.items() if code is ErrorCode.NONE)
            done(codes)

    def lose(self) -> None:
        """As in a crash: some are written, and nobody hears of it."""
        self._held = []


class FakeIds:
    def __init__(self) -> None:
        self.next = 100
        self.is_empty = False
        self.waiting: list[Callable[[int | None], None]] = []
        self.holds = False

    def take(self, done: Callable[[int | None], None]) -> None:
        if self.holds:
            self.waiting.append(done)
        elif self.is_empty:
            done(None)
        else:
            self.next += 1
            done(self.next)


class World:
    def __init__(self, *, server_version: int = 2, **config: int) -> None:
        self.clock = FakeClock()
        self.config = TransactionConfig(**{"state_log_num_partitions": 1, "abort_timed_out_interval_ms": 100, **config})
        self.log = FakeLog()
        self.markers = FakeMarkers()
        self.ids = FakeIds()
        self.server_version = server_version
        self.epoch = 0
        self.dropped: list[int] = []
        self.start()

    def start(self) -> None:
        """Also after a crash: only the log, and the markers that were written, are left."""
        self.coordinator = TransactionCoordinator(
            self.config, self.markers, self.ids, lambda: self.server_version, self.clock, lambda: None
        )
        self.epoch += 1
        self.coordinator.load(0, self.epoch, self.log)
        self.settle()

    def restart(self) -> None:
        self.markers.lose()
        self.ids.waiting.clear()
        self.start()

    def settle(self) -> None:
        runtime = self.coordinator.runtime
        while (deadline_ms := runtime.deadline_ms()) is not None and deadline_ms <= self.clock.ms:
            runtime.poll()

    def advance(self, ms: int) -> None:
        runtime = self.coordinator.runtime
        until = self.clock.ms + ms
        while (deadline_ms := runtime.deadline_ms()) is not None and deadline_ms <= until:
            self.clock.ms = max(self.clock.ms, deadline_ms)
            runtime.poll()
        self.clock.ms = until

    @property
    def machine(self) -> TransactionMachine:
        return self.coordinator.runtime.shards()[0].machine

    def value(self, transactional_id: str = ID) -> TransactionValue:
        value = self.machine.value_of(transactional_id)
        assert value is not None
        return value

    @property
    def state(self) -> str:
        return self.value().state.label

    def client(self, connection: int) -> Client:
        return Client(connection, lambda: self.dropped.append(connection))

    # requests: each gives a list that holds the answer once there is one

    def init(
        self,
        expected: ProducerName | None = None,
        *,
        timeout_ms: int = 60_000,
        connection: int = 1,
        transactional_id: str = ID,
    ) -> list[Ended]:
        answers: list[Ended] = []
        self.coordinator.init_producer_id(
            transactional_id, timeout_ms, expected, self.client(connection), answers.append
        )
        return answers

    def add(
        self, producer: ProducerName, *partitions: TopicPartition, version: int = 0, connection: int = 1
    ) -> list[ErrorCode]:
        answers: list[ErrorCode] = []
        self.coordinator.add_partitions(
            ID, producer, partitions or (T0,), version, self.client(connection), answers.append
        )
        return answers

    def end(
        self, producer: ProducerName, committed: bool = True, *, version: int = 0, connection: int = 1
    ) -> list[Ended]:
        answers: list[Ended] = []
        self.coordinator.end_transaction(ID, producer, committed, version, self.client(connection), answers.append)
        return answers

    def verify(self, producer: ProducerName, *partitions: TopicPartition, add: bool = False) -> list[Any]:
        answers: list[Mapping[TopicPartition, ErrorCode]] = []
        self.coordinator.verify(ID, producer.id, producer.epoch, partitions or (T0,), add=add, done=answers.append)
        return answers

    # shortcuts

    def producer(self, **options: Any) -> ProducerName:
        """Ask until the answer is there, as a client does."""
        for _ in range(5):
            ended = self.init(**options)[0]
            if ended.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                assert ended.code is ErrorCode.NONE, ended
                return ProducerName(ended.producer_id, ended.producer_epoch)
        raise AssertionError("concurrent for ever")

    def ended(self, producer: ProducerName, committed: bool = True, **options: Any) -> ProducerName:
        """End it; who the producer is afterwards."""
        answer = self.end(producer, committed, **options)[0]
        assert answer.code is ErrorCode.NONE, answer
        return ProducerName(answer.producer_id, answer.producer_epoch)
