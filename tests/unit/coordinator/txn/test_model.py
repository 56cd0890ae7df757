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
        """Those of the transaction that it knows were added."""
        self.tried: frozenset[TopicPartition] = frozenset()
        """And those that may have been."""
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
        self.commits: list[tuple[frozenset[TopicPartition], frozenset[TopicPartition]]] = []
        """Commits that a client has asked for: what must be in the transaction, and what may be."""
        self.aborts: list[tuple[frozenset[TopicPartition], frozenset[TopicPartition]]] = []
        self.writes = 0
        self.late: list[Callable[[], None]] = []
        """Requests of connections that were given up: they may arrive at any time."""

    @initialize(versions=st.lists(st.sampled_from([0, 2]), min_size=1, max_size=2))
    def clients_come(self, versions: list[int]) -> None:
        self.clients = [Producer(version) for version in versions]
        for client in self.clients:
            self.connect(client)
            self.init(client, False, 60_000)

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

    def init(self, client: Producer, resumes: bool, timeout_ms: int) -> None:
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
                client.partitions = client.tried = frozenset()
            elif ended.code not in _RETRIABLE:
                client.is_dead = True

        def ask() -> None:
            self.world.coordinator.init_producer_id(ID, timeout_ms, expected, who, answered)

        client.asks = ask
        ask()

    @rule(index=st.integers(0, 1), count=st.integers(1, 2), is_held=st.booleans())
    def write(self, index: int, count: int, is_held: bool) -> None:
        """To partitions of their own: so each is known to belong to one transaction. One that is held up on its way is
        sent again over a new connection."""
        client = self.clients[index % len(self.clients)]
        name = client.name
        if client.asks is not None or name is None or client.is_dead:
            return
        partitions = frozenset(("t", self.writes + number) for number in range(count))
        self.writes += count
        client.tried |= partitions
        if is_held:
            held, version = self.here(client), client.version
            self.late.append(
                lambda: self.world.coordinator.add_partitions(
                    ID, name, sorted(partitions), version, held if version == 0 else None, lambda code: None
                )
            )
            self.connect(client)
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

    @rule(index=st.integers(0, 1), committed=st.booleans(), is_held=st.booleans())
    def end(self, index: int, committed: bool, is_held: bool) -> None:
        client = self.clients[index % len(self.clients)]
        name = client.name
        if client.asks is not None or name is None or client.is_dead or not client.partitions:
            return
        if is_held:
            held, version = self.here(client), client.version
            self.late.append(
                lambda: self.world.coordinator.end_transaction(ID, name, committed, version, held, lambda ended: None)
            )
            self.connect(client)
        self._end(client, name, committed)

    def _end(self, client: Producer, name: ProducerName, committed: bool) -> None:
        who = self.here(client)
        if committed:
            self.commits.append((client.partitions, client.tried))
        else:
            self.aborts.append((client.partitions, client.tried))

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
            client.partitions = client.tried = frozenset()
            if client.version == 2:
                client.name = ProducerName(ended.producer_id, ended.producer_epoch)

        def ask() -> None:
            self.world.coordinator.end_transaction(ID, name, committed, client.version, who, answered)

        client.asks = ask
        client.ends = (name, committed)
        ask()

    def give_up(self, client: Producer) -> None:
        """No answer: the client connects anew and sends an end again; what it sent before may still arrive."""
        if client.asks is None:
            return
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

    @rule(
        index=st.integers(0, 1),
        kind=st.sampled_from(
            ["give up", "give up", "init", "resume", "wait", "markers", "no markers", "log", "no log", "crash"]
        ),
        amount=st.sampled_from([0, 1, 3]),
    )
    def trouble(self, index: int, kind: str, amount: int) -> None:
        client, world = self.clients[index % len(self.clients)], self.world
        match kind:
            case "give up":
                self.give_up(client)
            case "init" | "resume":
                self.init(client, kind == "resume", 60_000 if amount else 1_000)
            case "wait":
                world.advance((10, 600, 0, 40_000)[amount])
            case "markers":
                world.markers.holds = False
                world.markers.release()
            case "no markers":
                world.markers.holds = True
            case "log":
                world.log.commit()
            case "no log":
                world.log.holds = True
            case "crash":
                self.crash(amount)

    def crash(self, lost: int) -> None:
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
    def what_is_ended_is_what_a_client_asked_for(self) -> None:
        """All of a transaction and nothing of another: neither a late end nor a late write gets in (I15)."""
        for value in self.values():
            if value.state is TransactionState.PREPARE_COMMIT:
                assert any(must <= value.partitions <= may for must, may in self.commits), value
            elif value.state is TransactionState.PREPARE_ABORT and value.client_version == 0:
                assert any(must <= value.partitions <= may for must, may in self.aborts), value

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
TestTransactions.settings = settings(max_examples=80, stateful_step_count=50)
