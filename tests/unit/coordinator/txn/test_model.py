"""Clients of one transactional id that retry, time out and are fenced, over loads at any point: no transaction has a
commit and an abort, epochs never go back, and what a client was told to be committed is."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.coordinator.txn.world import ID, World
from tidelog.coordinator.txn.coordinator import Client
from tidelog.coordinator.txn.ports import TopicPartition
from tidelog.coordinator.txn.records import TransactionRecord, TransactionValue, decode_record
from tidelog.coordinator.txn.state import TransactionState
from tidelog.coordinator.txn.transaction import Ended, ProducerName
from tidelog.protocol.batch import iter_records
from tidelog.protocol.errors import ErrorCode

PARTITIONS = st.frozensets(st.sampled_from([("t", 0), ("t", 1), ("u", 0)]), min_size=1)
_RETRIABLE = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class Producer:
    """A client: one request at a time, sent again when no answer came, over a new connection."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.name: ProducerName | None = None
        self.is_dead = False
        self.connection = 0
        self.partitions: frozenset[TopicPartition] = frozenset()
        self.asks: Callable[[], None] | None = None
        """The request that is under way."""
        self.ends: tuple[ProducerName, bool] | None = None
        """The end that was sent last, to be sent again when no answer came."""


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.connections = 0
        self.clients: list[Producer] = []
        self.told: list[tuple[int, int, bool, frozenset[TopicPartition]]] = []
        """Ends that a client was told of: producer id, epoch before, outcome, partitions."""
        self.late: list[Callable[[], None]] = []
        """Requests of connections that were given up: they may arrive at any time."""

    @initialize(versions=st.lists(st.sampled_from([0, 2]), min_size=1, max_size=3))
    def clients_come(self, versions: list[int]) -> None:
        self.clients = [Producer(version) for version in versions]
        for client in self.clients:
            self.connect(client)

    def connect(self, client: Producer) -> None:
        self.connections += 1
        client.connection = self.connections

    def here(self, client: Producer) -> Client:
        number = client.connection

        def drop() -> None:
            if client.connection == number:
                self.connect(client)

        return Client(number, drop)

    # what clients do

    @rule(index=st.integers(0, 2), resumes=st.booleans(), timeout_ms=st.sampled_from([1_000, 60_000]))
    def init(self, index: int, resumes: bool, timeout_ms: int) -> None:
        client = self.clients[index % len(self.clients)]
        if client.asks is not None:
            return
        expected = client.name if resumes else None
        who = self.here(client)

        def answered(ended: Ended) -> None:
            if client.connection != who.connection or client.asks is not ask:
                return
            client.asks = None
            if ended.code is ErrorCode.NONE:
                client.name = ProducerName(ended.producer_id, ended.producer_epoch)
                client.is_dead = False
                client.partitions = frozenset()
            elif ended.code not in _RETRIABLE:
                client.is_dead = True

        def ask() -> None:
            self.world.coordinator.init_producer_id(ID, timeout_ms, expected, who, answered)

        client.asks = ask
        ask()

    @rule(index=st.integers(0, 2), partitions=PARTITIONS)
    def write(self, index: int, partitions: frozenset[TopicPartition]) -> None:
        client = self.clients[index % len(self.clients)]
        name = client.name
        if client.asks is not None or name is None or client.is_dead:
            return
        who = self.here(client)

        def answered(code: ErrorCode) -> None:
            if client.connection != who.connection or client.asks is not ask:
                return
            client.asks = None
            if code is ErrorCode.NONE:
                client.partitions |= partitions
            elif code not in _RETRIABLE:
                client.is_dead = True

        def ask() -> None:
            wanted = sorted(partitions)
            origin = who if client.version == 0 else None
            self.world.coordinator.add_partitions(ID, name, wanted, client.version, origin, answered)

        client.asks = ask
        ask()

    @rule(index=st.integers(0, 2), committed=st.booleans())
    def end(self, index: int, committed: bool) -> None:
        client = self.clients[index % len(self.clients)]
        name = client.name
        if client.asks is not None or name is None or client.is_dead or not client.partitions:
            return
        self._end(client, name, committed)

    def _end(self, client: Producer, name: ProducerName, committed: bool) -> None:
        who = self.here(client)

        def answered(ended: Ended) -> None:
            if client.connection != who.connection or client.asks is not ask:
                return
            if ended.code in _RETRIABLE:
                return  # sent again by `give_up`
            client.asks = None
            if ended.code is not ErrorCode.NONE:
                client.is_dead = True
                return
            self.told.append((name.id, name.epoch, committed, client.partitions))
            client.partitions = frozenset()
            if client.version == 2:
                client.name = ProducerName(ended.producer_id, ended.producer_epoch)

        def ask() -> None:
            self.world.coordinator.end_transaction(ID, name, committed, client.version, who, answered)

        client.asks = ask
        client.ends = (name, committed)
        ask()

    @rule(index=st.integers(0, 2), arrives_late=st.booleans())
    def give_up(self, index: int, arrives_late: bool) -> None:
        """No answer: the client connects anew and sends an end again; what it sent before may still arrive."""
        client = self.clients[index % len(self.clients)]
        if client.asks is None:
            return
        if arrives_late:
            self.late.append(client.asks)
        client.asks = None
        self.connect(client)
        end, client.ends = client.ends, None
        if end is not None and client.partitions and end[0] == client.name:
            self._end(client, *end)

    @precondition(lambda self: self.late)
    @rule(index=st.integers(0, 20))
    def a_late_request_arrives(self, index: int) -> None:
        self.late.pop(index % len(self.late))()

    # what goes wrong

    @rule(ms=st.sampled_from([10, 600, 5_000, 40_000]))
    def time_goes_by(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(holds=st.booleans())
    def markers(self, holds: bool) -> None:
        self.world.markers.holds = holds
        if not holds:
            self.world.markers.release()

    @rule()
    def the_log_is_slow(self) -> None:
        self.world.log.holds = True

    @rule()
    def the_log_goes_on(self) -> None:
        self.world.log.commit()

    @rule(lost=st.integers(0, 3))
    def the_node_crashes(self, lost: int) -> None:
        """What is not committed may be lost; connections are."""
        world = self.world
        log = world.log
        while lost and log.batches and log.end > log.high_watermark:
            log.batches.pop()
            log.end = self._end_of(log.batches)
            lost -= 1
        log.holds = False
        log._waiting = []
        log.high_watermark = log.end
        self.late.clear()
        world.restart()
        self.connections = 0
        for client in self.clients:
            client.asks = None
            self.connect(client)

    @staticmethod
    def _end_of(batches: list[bytes]) -> int:
        return 0 if not batches else [record.offset for record in iter_records(batches[-1])][-1] + 1

    # what must hold

    def values(self) -> list[TransactionValue]:
        found = []
        for key, value in self.world.log.records():
            record = decode_record(key, value)
            assert isinstance(record, TransactionRecord)
            assert record.value is not None
            found.append(record.value)
        return found

    @invariant()
    def epochs_never_go_back(self) -> None:
        names = [(value.producer_id, value.producer_epoch) for value in self.values()]
        assert names == sorted(names)

    @invariant()
    def a_transaction_has_one_outcome(self) -> None:
        decided: bool | None = None
        for value in self.values():
            if value.state is TransactionState.ONGOING:
                decided = None
            elif value.state.is_completing:
                committed = value.state is TransactionState.PREPARE_COMMIT
                assert decided is None or value.partitions == frozenset(), "decided twice"
                decided = committed
            elif value.state is not TransactionState.EMPTY:
                assert decided is (value.state is TransactionState.COMPLETE_COMMIT)

    @invariant()
    def markers_say_what_was_decided(self) -> None:
        """Only of decisions that are in the log, and of one epoch of version 2 only one kind."""
        kinds: dict[tuple[int, int, TopicPartition], set[bool]] = {}
        decisions = {
            (value.producer_id, value.producer_epoch, value.state is TransactionState.PREPARE_COMMIT)
            for value in self.values()
            if value.state.is_completing
        }
        for marker, at in self.world.markers.written:
            assert (marker.producer_id, marker.producer_epoch, marker.committed) in decisions
            if marker.transaction_version == 2:
                kinds.setdefault((marker.producer_id, marker.producer_epoch, at), set()).add(marker.committed)
        assert all(len(found) == 1 for found in kinds.values())

    @invariant()
    def what_was_told_is_in_the_log(self) -> None:
        values = self.values()
        for producer_id, epoch, committed, partitions in self.told:
            wanted = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
            assert any(
                value.state is wanted
                and value.producer_id == producer_id
                and value.producer_epoch in (epoch, epoch + 1)
                and partitions <= value.partitions
                for value in values
            ), (producer_id, epoch, committed, partitions)

    @invariant()
    def a_load_finds_the_same(self) -> None:
        other = World()
        other.markers.holds = True
        machine = other.machine
        for offset, (key, value) in enumerate(self.world.log.records()):
            record = decode_record(key, value)
            assert record is not None
            machine.replay(record, offset, -1)
        ours = {name: one.value for name, one in self.world.machine.transactions.items()}
        assert {name: one.value for name, one in machine.transactions.items()} == ours
        assert +self.world.machine.states == +machine.states

    def teardown(self) -> None:
        """Left alone, it comes to rest: nothing hangs."""
        self.world.log.commit()
        self.world.markers.holds = False
        self.world.markers.release()
        self.world.advance(200_000)
        for transaction in self.world.machine.transactions.values():
            assert transaction.value.state.is_idle
            assert not transaction.waiting


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
