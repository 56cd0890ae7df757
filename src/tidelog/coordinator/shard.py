"""One internal partition: its state machine, the log below it, and the answers that wait for the high watermark.

Durable state changes when a batch has been appended, by replaying it; a batch that could not be appended changes
nothing, and its requests are refused. An answer leaves when all that the state machine had seen is committed, so nobody
ever hears of something that a power cut or a new leader could take back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tidelog.coordinator.decision import Decision, StateMachine
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.outbox import Outbox
from tidelog.coordinator.shard_log import Producer, ShardLog, append_error_code
from tidelog.kernel.errors import DiskError
from tidelog.kernel.ports import Clock
from tidelog.log.errors import LogError
from tidelog.protocol.batch import NO_PRODUCER_ID
from tidelog.protocol.errors import ErrorCode

M = TypeVar("M", bound=StateMachine[Any])
T = TypeVar("T")
Settle = Callable[[ErrorCode, Moment], None]
Encoded = list[tuple[bytes, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    commit_timeout_ms: int = 5_000
    """offsets.commit.timeout.ms: how long an answer waits for the high watermark."""
    load_slice: int = 250
    """Units of loading in one turn, over all partitions: some ten milliseconds."""
    shared_batch_bytes: int = 512 * 1024


class _Pending:
    __slots__ = ("deadline_ms", "settles")

    def __init__(self, settles: list[Settle], deadline_ms: int) -> None:
        self.settles = settles
        self.deadline_ms = deadline_ms


class Shard(Generic[M]):
    def __init__(self, partition: int, machine: M, log: ShardLog, outbox: Outbox, clock: Clock, limits: Limits) -> None:
        self.partition = partition
        self.machine = machine
        self.when_changed: Callable[[Shard[M]], None] = lambda shard: None
        """Called when the shard wants to be polled, perhaps earlier than it said before."""
        self._log = log
        self._outbox = outbox
        self._clock = clock
        self._limits = limits
        self._end = 0
        self._committed = 0
        self._pending: deque[_Pending] = deque()
        self._shared: list[tuple[Decision[Any, Any], Encoded, Settle]] = []
        self._shared_bytes = 0

    @property
    def has_shared(self) -> bool:
        return bool(self._shared)

    def start(self, end_offset: int) -> None:
        """The log was replayed up to end_offset, which need not be committed yet."""
        self._end = end_offset
        if end_offset > 0:
            self._log.when_committed(end_offset, lambda code: self._note_committed(code, end_offset))
        self._changed()

    def ask(self, query: Callable[[M, Moment], T]) -> T:
        """An answer from what is in memory only (a heartbeat): it waits for nothing."""
        result = query(self.machine, Moment.of(self._clock))
        self._outbox.drain()
        return result

    def read(self, query: Callable[[M], T], answer: Callable[[T], None], refuse: Callable[[ErrorCode], T]) -> None:
        self.flush()
        now = Moment.of(self._clock)
        self._when_committed(self._end, [_answering(query(self.machine), answer, refuse, None, self._outbox)], now)
        self._changed()

    def write(
        self,
        decide: Callable[[M, Moment], Decision[Any, T]],
        answer: Callable[[T], None],
        refuse: Callable[[ErrorCode], T],
    ) -> None:
        self.flush()
        now = Moment.of(self._clock)
        followed = self._follow(decide(self.machine, now), now)
        if isinstance(followed, ErrorCode):
            self._outbox.send(answer, refuse(followed))
            self._changed()
            return
        decision = followed
        if decision.records or decision.response is not None or decision.settled is not None:
            self._commit(decision, _answering(decision.response, answer, refuse, decision.settled, self._outbox), now)
        self._changed()

    def write_shared(
        self,
        decide: Callable[[M, Moment], Decision[Any, T]],
        answer: Callable[[T], None],
        refuse: Callable[[ErrorCode], T],
    ) -> None:
        """A write whose decision depends on nothing that other such writes change: those of one turn of the loop share
        one append. Anything else that comes in between flushes them first."""
        decision = decide(self.machine, Moment.of(self._clock))
        settle = _answering(decision.response, answer, refuse, decision.settled, self._outbox)
        if not decision.records:
            settle(ErrorCode.NONE, Moment.of(self._clock))
            self._outbox.drain()
            return
        encoded = [self.machine.encode(record) for record in decision.records]
        size = sum(len(key) + len(value or b"") for key, value in encoded)
        if self._shared_bytes + size > self._limits.shared_batch_bytes:
            self.flush()
        self._shared.append((decision, encoded, settle))
        self._shared_bytes += size
        self._changed()

    def write_transactional(
        self,
        producer: Producer,
        decide: Callable[[M, Moment], Decision[Any, T]],
        answer: Callable[[T], None],
        refuse: Callable[[ErrorCode], T],
    ) -> None:
        """A write that takes effect with the marker that commits the producer's transaction, or never."""
        self.flush()
        now = Moment.of(self._clock)
        decision = decide(self.machine, now)
        settle = _answering(decision.response, answer, refuse, decision.settled, self._outbox)
        encoded = [self.machine.encode(record) for record in decision.records]
        code = self._write(decision.records, encoded, now, producer)
        if code is ErrorCode.NONE:
            self._when_committed(self._end, [settle], now)
        else:
            settle(code, now)
        self._changed()

    def flush(self) -> None:
        if not self._shared:
            return
        shared, self._shared, self._shared_bytes = self._shared, [], 0
        records = [record for decision, _, _ in shared for record in decision.records]
        encoded = [pair for _, pairs, _ in shared for pair in pairs]
        self._append(records, encoded, [settle for _, _, settle in shared], Moment.of(self._clock))

    def tick(self) -> None:
        self.flush()
        now = Moment.of(self._clock)
        for first in self.machine.tick(now):
            decision = self._follow(first, now)
            if not isinstance(decision, ErrorCode):
                self._commit(decision, _answering(None, _nobody, _nothing, decision.settled, self._outbox), now)
        self._expire_pending(now)
        self._outbox.drain()

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """A marker was written to this partition's log. What is read from now on waits until it is committed."""
        self._end = self._log.end_offset
        self.machine.end_transaction(producer_id, committed)

    def deadline_ms(self) -> int | None:
        while self._pending and not self._pending[0].settles:
            self._pending.popleft()
        deadline_ms = self.machine.deadline_ms()
        if not self._pending:
            return deadline_ms
        pending_ms = self._pending[0].deadline_ms
        return pending_ms if deadline_ms is None else min(deadline_ms, pending_ms)

    def stop(self, code: ErrorCode) -> None:
        """Refuse all who wait. What was appended stays in the log, and the next leader decides about it."""
        now = Moment.of(self._clock)
        pending, self._pending = self._pending, deque()
        shared, self._shared = self._shared, []
        for entry in pending:
            self._settle(entry, code, now)
        for _, _, settle in shared:
            settle(code, now)
        self.machine.unloaded(now)
        self._outbox.drain_all()

    def _changed(self) -> None:
        self._outbox.drain()
        self.when_changed(self)

    def _follow(self, decision: Decision[Any, T], now: Moment) -> Decision[Any, T] | ErrorCode:
        """Append the links of a chain up to the last one, which the answer waits for; or why one could not be."""
        while decision.then is not None:
            encoded = [self.machine.encode(record) for record in decision.records]
            code = self._write(decision.records, encoded, now)
            if code is not ErrorCode.NONE:
                if decision.settled is not None:
                    decision.settled(code, now)
                return code
            decision = decision.then(now)
        return decision

    def _commit(self, decision: Decision[Any, Any], settle: Settle, now: Moment) -> None:
        encoded = [self.machine.encode(record) for record in decision.records]
        self._append(decision.records, encoded, [settle], now)

    def _append(self, records: Sequence[Any], encoded: Encoded, settles: list[Settle], now: Moment) -> None:
        code = self._write(records, encoded, now)
        if code is ErrorCode.NONE:
            self._when_committed(self._end, settles, now)
            return
        for settle in settles:
            settle(code, now)

    def _write(
        self, records: Sequence[Any], encoded: Encoded, now: Moment, producer: Producer | None = None
    ) -> ErrorCode:
        if not encoded:
            return ErrorCode.NONE
        try:
            end = self._log.append(encoded, now.wall_ms, producer)
        except (LogError, DiskError) as error:
            return append_error_code(error)
        self._end = end
        for offset, record in enumerate(records, end - len(records)):
            self.machine.replay(record, offset, NO_PRODUCER_ID if producer is None else producer.producer_id)
        return ErrorCode.NONE

    def _when_committed(self, end: int, settles: list[Settle], now: Moment) -> None:
        if end <= self._committed:
            for settle in settles:
                settle(ErrorCode.NONE, now)
            return
        pending = _Pending(settles, now.ms + self._limits.commit_timeout_ms)
        self._pending.append(pending)
        self._log.when_committed(end, lambda code: self._on_committed(pending, code, end))

    def _on_committed(self, pending: _Pending, code: ErrorCode, end: int) -> None:
        self._note_committed(code, end)
        self._settle(pending, code, Moment.of(self._clock))
        self._outbox.drain()

    def _note_committed(self, code: ErrorCode, end: int) -> None:
        if code is ErrorCode.NONE:
            self._committed = max(self._committed, end)

    def _settle(self, pending: _Pending, code: ErrorCode, now: Moment) -> None:
        # Emptied first: a batch that timed out may be committed later, and nobody is to be answered twice.
        settles, pending.settles = pending.settles, []
        for settle in settles:
            settle(code, now)

    def _expire_pending(self, now: Moment) -> None:
        while self._pending and self._pending[0].deadline_ms <= now.ms:
            self._settle(self._pending.popleft(), ErrorCode.REQUEST_TIMED_OUT, now)


def _answering(
    response: T,
    answer: Callable[[T], None],
    refuse: Callable[[ErrorCode], T],
    settled: Settle | None,
    outbox: Outbox,
) -> Settle:
    def settle(code: ErrorCode, now: Moment) -> None:
        if settled is not None:
            settled(code, now)
        outbox.send(answer, response if code is ErrorCode.NONE else refuse(code))

    return settle


def _nobody(response: None) -> None:
    """Timers have nobody who waits for an answer."""


def _nothing(code: ErrorCode) -> None:
    return None
