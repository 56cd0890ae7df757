"""From a decision that is committed to the record that says all markers are written.

The markers leave when PrepareCommit or PrepareAbort is committed, and again after each load that finds one. They are
sent until each partition has its own, or is no more; what was decided is never decided anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.outbox import Outbox
from tidelog.coordinator.timers import Timers
from tidelog.coordinator.txn import ending
from tidelog.coordinator.txn.config import MARKERS_BACKOFF_MS, MARKERS_BACKOFF_MS_MAX, MARKERS_TIMEOUT_MS
from tidelog.coordinator.txn.counters import Counters
from tidelog.coordinator.txn.ports import TopicPartition
from tidelog.coordinator.txn.records import TransactionRecord
from tidelog.coordinator.txn.state import TransactionState
from tidelog.coordinator.txn.timing import TimerKey, TimerKind
from tidelog.coordinator.txn.transaction import Transaction
from tidelog.log.transactions import Marker
from tidelog.protocol.errors import ErrorCode

_log = logging.getLogger("tidelog.coordinator")
_DONE: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # deleted meanwhile
        ErrorCode.INVALID_PRODUCER_EPOCH,  # written before, or overtaken by an abort by hand
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)


class MarkersToSend(NamedTuple):
    transactional_id: str
    attempt: int
    marker: Marker
    partitions: tuple[TopicPartition, ...]


class Completing:
    def __init__(
        self,
        coordinator_epoch: int,
        timers: Timers[TimerKey],
        outbox: Outbox,
        send: Callable[[MarkersToSend], None],
        counters: Counters,
    ) -> None:
        self._coordinator_epoch = coordinator_epoch
        self._timers = timers
        self._outbox = outbox
        self._send = send
        self._counters = counters

    def decided(self, transaction: Transaction, code: ErrorCode, now: Moment) -> None:
        """The records of a decision have come to rest: committed, or not (yet)."""
        if not transaction.value.state.is_completing or transaction.is_sending:
            return
        if code is ErrorCode.NONE:
            self.send(transaction, now)
        else:
            self._again(transaction, now)

    def send(self, transaction: Transaction, now: Moment) -> None:
        value = transaction.value
        if transaction.unmarked is None:
            transaction.unmarked = value.partitions
        transaction.attempt += 1
        transaction.is_sending = True
        marker = Marker(
            value.producer_id,
            value.producer_epoch,
            self._coordinator_epoch,
            value.state is TransactionState.PREPARE_COMMIT,
            value.client_version,
        )
        sent = MarkersToSend(
            transaction.transactional_id, transaction.attempt, marker, tuple(sorted(transaction.unmarked))
        )
        self._timers.schedule((TimerKind.MARKERS, transaction.transactional_id), now.ms + MARKERS_TIMEOUT_MS)
        self._outbox.send(self._send, sent)

    def due(self, transaction: Transaction, now: Moment) -> Decision[TransactionRecord, None] | None:
        """Time to try again what was not committed, not written, or not heard of."""
        if not transaction.value.state.is_completing:
            return None
        transaction.is_sending = False
        if transaction.unmarked == frozenset():
            return self._completed(transaction, now)
        # Nothing to write: it is settled when all that stands in the log is committed.
        return Decision((), None, lambda code, then: self.decided(transaction, code, then))

    def written(
        self, transaction: Transaction, attempt: int, results: Mapping[TopicPartition, ErrorCode], now: Moment
    ) -> Decision[TransactionRecord, None]:
        if not transaction.is_sending or transaction.attempt != attempt:
            return Decision((), None)
        transaction.is_sending = False
        unmarked = transaction.unmarked or frozenset()
        failed = {at: code for at in unmarked if (code := results.get(at, ErrorCode.UNKNOWN_SERVER_ERROR)) not in _DONE}
        self._note(transaction, {at: code for at, code in results.items() if code is not ErrorCode.NONE})
        transaction.unmarked = frozenset(failed)
        if failed:
            self._again(transaction, now)
            return Decision((), None)
        return self._completed(transaction, now)

    def _completed(self, transaction: Transaction, now: Moment) -> Decision[TransactionRecord, None]:
        value = ending.complete(transaction.value, now.wall_ms)
        record = TransactionRecord(transaction.transactional_id, value, transaction.last_epoch)

        def settled(code: ErrorCode, then: Moment) -> None:
            if transaction.value.state.is_completing:
                self._again(transaction, then)  # the record could not be appended

        return Decision((record,), None, settled)

    def _again(self, transaction: Transaction, now: Moment) -> None:
        backoff_ms = min(MARKERS_BACKOFF_MS << min(transaction.retries, 10), MARKERS_BACKOFF_MS_MAX)
        transaction.retries += 1
        self._counters.marker_retries += 1
        self._timers.schedule((TimerKind.MARKERS, transaction.transactional_id), now.ms + backoff_ms)

    def _note(self, transaction: Transaction, failed: Mapping[TopicPartition, ErrorCode]) -> None:
        if failed:
            (topic, index), code = min(failed.items())
            _log.warning(
                "%d marker(s) of %r were not written, %s of %s-%d: %s",
                len(failed),
                transaction.transactional_id,
                "that" if len(failed) == 1 else "the first",
                topic,
                index,
                ErrorCode(code).name,
            )
