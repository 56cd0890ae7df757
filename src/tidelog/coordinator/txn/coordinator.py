"""The transaction coordinator: one method per Kafka API, each finding the partition that owns the transactional id.

Every method answers through a callback, at once or later. A request that must wait for the markers of the transaction
before is kept here and decided anew when they are written, in the order of arrival for its transactional id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.partitioning import partition_for
from tidelog.coordinator.runtime import CoordinatorRuntime
from tidelog.coordinator.shard import Shard
from tidelog.coordinator.shard_log import ShardLog, coordinator_error
from tidelog.coordinator.txn.completing import MarkersToSend
from tidelog.coordinator.txn.config import TransactionConfig
from tidelog.coordinator.txn.counters import Counters
from tidelog.coordinator.txn.machine import TransactionMachine
from tidelog.coordinator.txn.ports import Markers, ProducerIdSource, TopicPartition
from tidelog.coordinator.txn.records import TransactionRecord
from tidelog.coordinator.txn.transaction import Ended, Needs, ProducerName
from tidelog.kernel.ports import Clock
from tidelog.protocol.errors import ErrorCode

T = TypeVar("T")
Answer = Callable[[T], None]
Decide = Callable[[TransactionMachine, Moment, "int | None"], "Decision[TransactionRecord, T] | Needs"]
NO_CONNECTION = 0
"""Of a request that no client sent: never older than another."""


class Client(NamedTuple):
    """Who asks: the number of its connection, in the order in which they were accepted, and how to end it."""

    connection: int
    drop: Callable[[], None]


class TransactionCoordinator:
    def __init__(
        self,
        config: TransactionConfig,
        markers: Markers,
        producer_ids: ProducerIdSource,
        server_version: Callable[[], int],
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        self.config = config
        self.counters = Counters()
        self._markers = markers
        self._producer_ids = producer_ids
        self._server_version = server_version
        self._epochs: dict[int, int] = {}
        self.runtime: CoordinatorRuntime[TransactionMachine] = CoordinatorRuntime(
            lambda partition, outbox: TransactionMachine(
                config,
                self._epochs[partition],
                outbox,
                lambda sent: self._send(partition, sent),
                self.counters,
                server_version,
            ),
            clock,
            wake,
        )

    # leadership

    def load(self, partition: int, epoch: int, log: ShardLog) -> None:
        """The epoch is that of the partition's leader, and stands in every marker of this coordinator."""
        self._epochs[partition] = max(epoch, self._epochs.get(partition, epoch))
        self.runtime.load(partition, epoch, log)

    def unload(self, partition: int, epoch: int) -> None:
        self.runtime.unload(partition, epoch)
        if self.runtime.find(partition) is ErrorCode.NOT_COORDINATOR:
            self._epochs.pop(partition, None)

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that owns a transactional id."""
        return partition_for(transactional_id, self.config.state_log_num_partitions)

    def find(self, transactional_id: str) -> Shard[TransactionMachine] | ErrorCode:
        return self.runtime.find(self.partition_for(transactional_id))

    # requests

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerName | None,
        client: Client,
        answer: Answer[Ended],
    ) -> None:
        if not transactional_id:
            answer(Ended(ErrorCode.INVALID_REQUEST))
        elif not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            answer(Ended(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
        elif not self._is_stale(transactional_id, client):
            self._serve(
                transactional_id,
                lambda machine, now, spare_id: machine.init(
                    transactional_id, timeout_ms, expected, spare_id, client.connection, now
                ),
                answer,
                Ended,
            )

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerName,
        partitions: Sequence[TopicPartition],
        client_version: int,
        client: Client | None,
        answer: Answer[ErrorCode],
    ) -> None:
        """All of them or none. Without a client it is another broker that asks, or this one for a write."""
        if not transactional_id:
            answer(ErrorCode.INVALID_REQUEST)
            return
        if client is not None and self._is_stale(transactional_id, client):
            return
        wanted = frozenset(partitions)
        connection = NO_CONNECTION if client is None else client.connection
        self._serve(
            transactional_id,
            lambda machine, now, _: machine.add(transactional_id, producer, wanted, client_version, connection, now),
            answer,
            lambda code: code,
        )

    def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerName,
        committed: bool,
        client_version: int,
        client: Client,
        answer: Answer[Ended],
    ) -> None:
        if not transactional_id:
            answer(Ended(ErrorCode.INVALID_REQUEST))
        elif client_version >= 2 or not self._is_stale(transactional_id, client):
            self._serve(
                transactional_id,
                lambda machine, now, spare_id: machine.end(
                    transactional_id, producer, committed, client_version, spare_id, client.connection, now
                ),
                answer,
                Ended,
            )

    def check_partitions(
        self,
        transactional_id: str,
        producer: ProducerName,
        partitions: Sequence[TopicPartition],
        answer: Answer[Mapping[TopicPartition, ErrorCode]],
    ) -> None:
        """Whether they are in the open transaction of this producer, each for itself."""
        wanted = frozenset(partitions)
        shard = self.find(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        if isinstance(shard, ErrorCode):
            answer(dict.fromkeys(wanted, shard))
            return
        shard.read(
            lambda machine: machine.verify(transactional_id, producer, wanted),
            answer,
            lambda code: dict.fromkeys(wanted, coordinator_error(code)),
        )

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
        done: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        """See ports.TransactionVerifier."""
        producer = ProducerName(producer_id, producer_epoch)

        def answer(codes: Mapping[TopicPartition, ErrorCode]) -> None:
            done({at: _for_a_write(code) for at, code in codes.items()})

        if add:
            self.add_partitions(
                transactional_id, producer, partitions, 2, None, lambda code: answer(dict.fromkeys(partitions, code))
            )
        else:
            self.check_partitions(transactional_id, producer, partitions, answer)

    # deciding

    def _is_stale(self, transactional_id: str, client: Client) -> bool:
        """A connection that a younger one has replaced: what still comes out of it was sent by a client that has given
        it up, and may belong to a transaction that is over. One that is alive after all connects anew."""
        shard = self.find(transactional_id)
        if isinstance(shard, ErrorCode) or not shard.machine.is_stale(transactional_id, client.connection):
            return False
        self.counters.stale_requests += 1
        client.drop()
        return True

    def _serve(
        self, transactional_id: str, decide: Decide[T], answer: Answer[T], refuse: Callable[[ErrorCode], T]
    ) -> None:
        shard = self.find(transactional_id)
        if isinstance(shard, ErrorCode):
            answer(refuse(shard))
        else:
            _Serving(self, shard, transactional_id, decide, answer, refuse).attempt()

    def take_producer_id(self, done: Callable[[int | None], None]) -> None:
        self._producer_ids.take(done)

    # markers

    def _send(self, partition: int, sent: MarkersToSend) -> None:
        shard = self.runtime.find(partition)

        def done(results: dict[TopicPartition, ErrorCode]) -> None:
            # Written or not: the log may belong to somebody else by now, or this node may have begun anew with it.
            if not isinstance(shard, ErrorCode) and self.runtime.find(partition) is shard:
                shard.write(lambda machine, now: machine.markers_written(sent, results, now), _ignore, _nothing)

        self._markers.write(sent.marker, sent.partitions, done)


class _Serving:
    """One request: decided at once, or when a producer id has come, or when markers are written."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        shard: Shard[TransactionMachine],
        transactional_id: str,
        decide: Decide[T],
        answer: Answer[T],
        refuse: Callable[[ErrorCode], T],
    ) -> None:
        self._coordinator = coordinator
        self._shard = shard
        self._transactional_id = transactional_id
        self._decide: Decide[object] = decide
        self._answer: Callable[[object], None] = answer  # type: ignore[assignment]
        self._refuse: Callable[[ErrorCode], object] = refuse

    def attempt(self, spare_id: int | None = None) -> None:
        wants_id = False

        def decide(machine: TransactionMachine, now: Moment) -> Decision[TransactionRecord, object]:
            nonlocal wants_id
            decision = self._decide(machine, now, spare_id)
            if isinstance(decision, Decision):
                return decision
            wants_id = decision.producer_id
            if wants_id or machine.wait(self._transactional_id, self._resume, now):
                return Decision((), None)
            return Decision((), self._refuse(ErrorCode.CONCURRENT_TRANSACTIONS))

        self._shard.write(decide, self._answer, lambda code: self._refuse(coordinator_error(code)))
        if wants_id:
            self._coordinator.take_producer_id(self._with_id)

    def _with_id(self, producer_id: int | None) -> None:
        if producer_id is None:
            self._answer(self._refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        elif self._is_ours():
            self.attempt(producer_id)

    def _resume(self, is_done: bool) -> None:
        if not is_done:
            self._answer(self._refuse(ErrorCode.CONCURRENT_TRANSACTIONS))
        elif self._is_ours():
            self.attempt()

    def _is_ours(self) -> bool:
        found = self._coordinator.find(self._transactional_id)
        if found is self._shard:
            return True
        self._answer(self._refuse(found if isinstance(found, ErrorCode) else ErrorCode.NOT_COORDINATOR))
        return False


def _for_a_write(code: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code


def _ignore(response: None) -> None:
    """Nobody waits for the end of a transaction: EndTxn was answered when it was decided."""


def _nothing(code: ErrorCode) -> None:
    return None
