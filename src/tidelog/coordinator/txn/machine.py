"""The transactional ids of one partition of `__transaction_state`.

Durable is the last record of each id, changed by replay. Beside it, in memory, are time-outs, the requests that wait
for markers, and the youngest connection of each id. A decision is replayed as it is appended, so the next request
finds it, while answers and markers wait until it is committed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.outbox import Outbox
from tidelog.coordinator.timers import Timers
from tidelog.coordinator.txn import adding, ending, init
from tidelog.coordinator.txn.completing import Completing, MarkersToSend
from tidelog.coordinator.txn.config import DUE_PER_TICK, SCHEDULED_PER_TICK, WAIT_MS, WAITING_MAX, TransactionConfig
from tidelog.coordinator.txn.counters import Counters
from tidelog.coordinator.txn.ports import TopicPartition
from tidelog.coordinator.txn.records import TransactionRecord, TransactionValue, decode_record, encode_record
from tidelog.coordinator.txn.state import TransactionState
from tidelog.coordinator.txn.timing import TimerKey, TimerKind, on_grid
from tidelog.coordinator.txn.transaction import EndDecision, Needs, ProducerName, Transaction
from tidelog.protocol.errors import ErrorCode

T = TypeVar("T")


class TransactionMachine:
    def __init__(
        self,
        config: TransactionConfig,
        coordinator_epoch: int,
        outbox: Outbox,
        send: Callable[[MarkersToSend], None],
        counters: Counters,
        server_version: Callable[[], int],
    ) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.states: Counter[TransactionState] = Counter()
        """How many transactional ids are in each."""
        self._config = config
        self._outbox = outbox
        self._counters = counters
        self._server_version = server_version
        self._timers: Timers[TimerKey] = Timers()
        self._completing = Completing(coordinator_epoch, self._timers, outbox, send, counters)
        self._base_ms = 0
        self._unscheduled: deque[str] = deque()
        """Transactional ids that were loaded, and whose timers are not set yet."""

    # durable state

    encode = staticmethod(encode_record)
    decode = staticmethod(decode_record)

    def replay(self, record: TransactionRecord, offset: int, producer_id: int) -> None:
        transaction = self.transactions.get(record.transactional_id)
        if transaction is not None:
            self.states[transaction.value.state] -= 1
        if record.value is None:
            self.transactions.pop(record.transactional_id, None)
            return
        self.states[record.value.state] += 1
        if transaction is None:
            transaction = Transaction(record.transactional_id, record.value)
            self.transactions[record.transactional_id] = transaction
        transaction.value = record.value
        transaction.last_epoch = record.last_epoch
        if not record.value.state.is_completing:
            self._rest(transaction)

    def _rest(self, transaction: Transaction) -> None:
        """No markers are on their way (any more): whoever has waited for that goes on."""
        transaction.unmarked = None
        transaction.is_sending = False
        transaction.retries = 0
        waiting, transaction.waiting = transaction.waiting, type(transaction.waiting)()
        for resume in waiting:
            self._outbox.send(resume, True)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Nobody writes to this topic within a transaction."""

    # life

    def loaded(self, now: Moment) -> Iterator[int]:
        self._base_ms = now.ms
        self._unscheduled.extend(self.transactions)
        return iter(())

    def _schedule_loaded(self, now: Moment) -> None:
        """In slices: tens of thousands of timers at once would stop the loop."""
        for _ in range(min(len(self._unscheduled), SCHEDULED_PER_TICK)):
            transaction = self.transactions.get(self._unscheduled.popleft())
            if transaction is None:
                continue
            value = transaction.value
            if value.state.is_completing and not transaction.is_sending:
                self._timers.schedule((TimerKind.MARKERS, transaction.transactional_id), now.ms)
            elif value.state is TransactionState.ONGOING:
                self._limit(transaction, value.timeout_ms - (now.wall_ms - value.start_ms), now)
            self._expire_later(transaction, value.update_ms, now)

    def unloaded(self, now: Moment) -> None:
        for transaction in self.transactions.values():
            self._send_away(transaction)
        self._timers.clear()
        self._unscheduled.clear()

    def deadline_ms(self) -> int | None:
        return self._base_ms if self._unscheduled else self._timers.next_ms()

    def tick(self, now: Moment) -> Iterator[Decision[TransactionRecord, None]]:
        self._schedule_loaded(now)
        expired: list[Transaction] = []
        for kind, transactional_id in islice(self._due(now), DUE_PER_TICK):
            transaction = self.transactions.get(transactional_id)
            if transaction is None:
                continue
            match kind:
                case TimerKind.WAIT:
                    self._send_away(transaction)
                case TimerKind.EXPIRY:
                    if self._is_expired(transaction, now):
                        expired.append(transaction)
                case TimerKind.TIMEOUT:
                    if transaction.value.state is TransactionState.ONGOING and transaction.timeout_at_ms <= now.ms:
                        yield self._time_out(transaction, now)
                case TimerKind.MARKERS:
                    if (decision := self._completing.due(transaction, now)) is not None:
                        yield decision
        if expired:
            yield self._forget(expired, now)

    def _due(self, now: Moment) -> Iterator[TimerKey]:
        while (key := self._timers.pop_due(now.ms)) is not None:
            yield key

    # time-outs and expiry

    def _limit(self, transaction: Transaction, left_ms: int, now: Moment) -> None:
        transaction.timeout_at_ms = now.ms + left_ms
        look_ms = on_grid(transaction.timeout_at_ms, self._base_ms, self._config.abort_timed_out_interval_ms)
        self._timers.schedule((TimerKind.TIMEOUT, transaction.transactional_id), max(look_ms, now.ms))

    def _time_out(self, transaction: Transaction, now: Moment) -> Decision[TransactionRecord, None]:
        self._counters.timed_out += 1
        fence = ending.fence(transaction, now.wall_ms, self._server_version())

        def settled(code: ErrorCode, then: Moment) -> None:
            if transaction.value.state is TransactionState.ONGOING:
                self._limit(transaction, 0, Moment(then.ms + 1, then.wall_ms))  # not appended: the next look
            self._completing.decided(transaction, code, then)

        return Decision(fence.records, None, settled)

    def _expire_later(self, transaction: Transaction, update_ms: int, now: Moment) -> None:
        left_ms = self._config.transactional_id_expiration_ms - (now.wall_ms - update_ms)
        look_ms = on_grid(now.ms + left_ms, self._base_ms, self._config.remove_expired_interval_ms)
        self._timers.schedule((TimerKind.EXPIRY, transaction.transactional_id), max(look_ms, now.ms))

    def _is_expired(self, transaction: Transaction, now: Moment) -> bool:
        value = transaction.value
        if value.state.is_idle and now.wall_ms - value.update_ms >= self._config.transactional_id_expiration_ms:
            return True
        self._expire_later(transaction, value.update_ms if value.state.is_idle else now.wall_ms, now)
        return False

    def _forget(self, expired: list[Transaction], now: Moment) -> Decision[TransactionRecord, None]:
        def settled(code: ErrorCode, then: Moment) -> None:
            for transaction in expired:
                if transaction.transactional_id in self.transactions:
                    self._expire_later(transaction, then.wall_ms, then)  # not appended

        self._counters.expired += len(expired)
        records = [TransactionRecord(transaction.transactional_id, None) for transaction in expired]
        return Decision(records, None, settled)

    # waiting for markers

    def wait(self, transactional_id: str, resume: Callable[[bool], None], now: Moment) -> bool:
        """Whether there is room. Resumed with True when the markers are written, with False when that takes long."""
        transaction = self.transactions[transactional_id]
        if len(transaction.waiting) >= WAITING_MAX:
            return False
        if not transaction.waiting:
            self._timers.schedule((TimerKind.WAIT, transactional_id), now.ms + WAIT_MS)
        transaction.waiting.append(resume)
        return True

    def _send_away(self, transaction: Transaction) -> None:
        while transaction.waiting:
            self._outbox.send(transaction.waiting.popleft(), False)

    # connections

    def is_stale(self, transactional_id: str, connection: int) -> bool:
        transaction = self.transactions.get(transactional_id)
        return transaction is not None and connection < transaction.newest_connection

    def _heard(self, transactional_id: str, producer: ProducerName | None, connection: int) -> None:
        """Only of who is the producer: a zombie that connects anew must not shut out the one that replaced it."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None or connection <= transaction.newest_connection:
            return
        if producer is None or adding.check(transaction, producer) is ErrorCode.NONE:
            transaction.newest_connection = connection

    # requests

    def init(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerName | None,
        spare_id: int | None,
        connection: int,
        now: Moment,
    ) -> EndDecision | Needs:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            outcome = init.begin(transactional_id, timeout_ms, spare_id, now.wall_ms)
        else:
            version = self._server_version()
            outcome = init.resume(transaction, timeout_ms, expected, spare_id, now.wall_ms, version)
        if isinstance(outcome, Needs):
            return outcome

        def settled(code: ErrorCode, then: Moment) -> None:
            known = self.transactions.get(transactional_id)
            if known is not None:
                self._completing.decided(known, code, then)
                if (TimerKind.EXPIRY, transactional_id) not in self._timers:
                    self._expire_later(known, known.value.update_ms, then)

        if outcome.records or outcome.response.code is ErrorCode.NONE:
            self._counters.fenced += outcome.response.code is ErrorCode.CONCURRENT_TRANSACTIONS
            self._outbox.send(lambda number: self._heard(transactional_id, None, number), connection)
        return Decision(outcome.records, outcome.response, settled)

    def add(
        self,
        transactional_id: str,
        producer: ProducerName,
        partitions: frozenset[TopicPartition],
        client_version: int,
        connection: int,
        now: Moment,
    ) -> Decision[TransactionRecord, ErrorCode] | Needs:
        self._heard(transactional_id, producer, connection)
        transaction = self.transactions.get(transactional_id)
        was_open = transaction is not None and transaction.value.state is TransactionState.ONGOING
        decision = adding.add(transaction, producer, partitions, client_version, now.wall_ms)
        if isinstance(decision, Decision) and decision.records and not was_open:
            assert transaction is not None
            self._limit(transaction, transaction.value.timeout_ms, now)
        return decision

    def verify(
        self, transactional_id: str, producer: ProducerName, partitions: frozenset[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        self._counters.verified += 1
        return adding.verify(self.transactions.get(transactional_id), producer, partitions)

    def end(
        self,
        transactional_id: str,
        producer: ProducerName,
        committed: bool,
        client_version: int,
        spare_id: int | None,
        connection: int,
        now: Moment,
    ) -> EndDecision | Needs:
        self._heard(transactional_id, producer, connection)
        transaction = self.transactions.get(transactional_id)
        decision = ending.end(transaction, producer, committed, client_version, spare_id, now.wall_ms)
        if isinstance(decision, Needs) or not decision.records:
            return decision
        assert transaction is not None
        self._counters.committed += committed
        self._counters.aborted += not committed
        return Decision(
            decision.records,
            decision.response,
            lambda code, then: self._completing.decided(transaction, code, then),
        )

    def markers_written(
        self, sent: MarkersToSend, results: Mapping[TopicPartition, ErrorCode], now: Moment
    ) -> Decision[TransactionRecord, None]:
        transaction = self.transactions.get(sent.transactional_id)
        if transaction is None:
            return Decision((), None)
        return self._completing.written(transaction, sent.attempt, results, now)

    # looking

    def value_of(self, transactional_id: str) -> TransactionValue | None:
        transaction = self.transactions.get(transactional_id)
        return None if transaction is None else transaction.value
