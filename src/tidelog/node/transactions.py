"""Drives the transaction coordinator: its shards follow the partitions of `__transaction_state`, its time follows the
loop, and its markers go to the partitions of this node."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tidelog.broker.auto_create import TRANSACTIONS_TOPIC
from tidelog.broker.deadlines import Deadlines
from tidelog.broker.producer_ids import ProducerIds
from tidelog.coordinator.txn.config import TransactionConfig
from tidelog.coordinator.txn.coordinator import TransactionCoordinator
from tidelog.coordinator.txn.ports import TopicPartition
from tidelog.coordinator.txn.state import TransactionState
from tidelog.kernel.ports import Clock
from tidelog.log.transactions import Marker
from tidelog.metadata.image import MetadataDelta
from tidelog.metadata.live_config import LiveConfig
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.node.driving import Driver
from tidelog.node.internal_topic import InternalTopic
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.markers import write_marker
from tidelog.replication.partition import Partition
from tidelog.replication.partitions import Partitions
from tidelog.replication.shard_log import PartitionShardLog

NO_SEQUENCE: Final = -1
"""Of the batches of `__transaction_state`, as Apache writes them."""


MARKERS_PER_TURN: Final = 256
"""About ten milliseconds: a transaction may have thousands of partitions, and others want to be heard."""
Note = Callable[[TopicPartition, ErrorCode], None]


class LocalMarkers:
    """Every partition is led by this node. In a cluster others are sent WriteTxnMarkers."""

    def __init__(self, partitions: Partitions, publisher: MetadataPublisher, clock: Clock) -> None:
        self._partitions = partitions
        self._publisher = publisher
        self._clock = clock
        self._queue: deque[tuple[Marker, TopicPartition, Note]] = deque()
        self._is_writing = False

    def write(
        self,
        marker: Marker,
        partitions: Sequence[TopicPartition],
        done: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        results: dict[TopicPartition, ErrorCode] = {}
        if not partitions:
            done(results)
            return

        def note(at: TopicPartition, code: ErrorCode) -> None:
            results[at] = code
            if len(results) == len(partitions):
                done(results)

        self._queue.extend((marker, at, note) for at in partitions)
        if not self._is_writing:
            self._write_some()

    def _write_some(self) -> None:
        self._is_writing = True  # one that is written may end its transaction, and that begin another
        try:
            for _ in range(min(MARKERS_PER_TURN, len(self._queue))):
                self._write_one(*self._queue.popleft())
        finally:
            self._is_writing = bool(self._queue)
            if self._queue:
                asyncio.get_running_loop().call_soon(self._write_some)

    def _write_one(self, marker: Marker, at: TopicPartition, note: Note) -> None:
        partition = self._partitions.get(*at)
        if partition is not None:
            write_marker(partition, marker, self._clock.wall_ms(), lambda code: note(at, code))
        elif self._publisher.image.partition(*at) is None:
            note(at, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            note(at, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class _Ids:
    """Producer ids for the coordinator, which knows no futures."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def take(self, done: Callable[[int | None], None]) -> None:
        taken = self._producer_ids.take()
        if isinstance(taken, int):
            done(taken)
        else:
            taken.add_done_callback(lambda future: done(_result(future)))


def _result(future: asyncio.Future[int]) -> int | None:
    return None if future.cancelled() or future.exception() is not None else future.result()


class Transactions:
    def __init__(
        self,
        partitions: Partitions,
        publisher: MetadataPublisher,
        config: LiveConfig,
        clock: Clock,
        deadlines: Deadlines,
        producer_ids: ProducerIds,
    ) -> None:
        self._clock = clock
        self._driver = Driver(clock, deadlines)
        self._topic = InternalTopic(TRANSACTIONS_TOPIC, partitions, publisher, self)
        self.coordinator = TransactionCoordinator(
            _transaction_config(config),
            LocalMarkers(partitions, publisher, clock),
            _Ids(producer_ids),
            lambda: publisher.image.features.get("transaction.version", 0),
            clock,
            self._driver.wake,
        )

    # following the metadata

    def start(self) -> None:
        self._driver.start(self.coordinator.runtime)
        self.load()

    def stop(self) -> None:
        self._driver.stop()

    def on_delta(self, delta: MetadataDelta) -> None:
        if self._driver.is_running:
            self._topic.on_delta(delta)

    def load(self) -> None:
        self._topic.load()

    def set_shard_count(self, count: int) -> None:
        self.coordinator.config = replace(self.coordinator.config, state_log_num_partitions=count)

    def load_shard(self, index: int, epoch: int, partition: Partition) -> None:
        log = PartitionShardLog(partition, self._clock, base_sequence=NO_SEQUENCE)
        self.coordinator.load(index, epoch, log)

    def unload_shard(self, index: int, epoch: int) -> None:
        self.coordinator.unload(index, epoch)

    # looking

    def states(self) -> Counter[TransactionState]:
        """How many transactional ids are in each state, for the metrics."""
        found: Counter[TransactionState] = Counter()
        for shard in self.coordinator.runtime.shards():
            found.update(shard.machine.states)
        return found


def _transaction_config(config: LiveConfig) -> TransactionConfig:
    return TransactionConfig(
        transaction_max_timeout_ms=config.integer("transaction.max.timeout.ms"),
        transactional_id_expiration_ms=config.integer("transactional.id.expiration.ms"),
        abort_timed_out_interval_ms=config.integer("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        remove_expired_interval_ms=config.integer("transaction.remove.expired.transaction.cleanup.interval.ms"),
        state_log_num_partitions=config.integer("transaction.state.log.num.partitions"),
    )
