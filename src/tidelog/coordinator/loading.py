"""Bringing a state machine to where the log is, in slices: a long log must not stop the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, Final

from tidelog.coordinator.decision import StateMachine
from tidelog.coordinator.moment import Moment
from tidelog.kernel.ports import Buffer
from tidelog.protocol.batch import NO_PRODUCER_ID, iter_records, read_header

_MARKER_KEY: Final = Struct(">hh")
_COMMIT_MARKER: Final = 1
_BYTES_A_UNIT: Final = 512
"""A unit is a small record, some twenty microseconds. The metadata of a classic group can have a thousand members."""


class Loading:
    def __init__(self, machine: StateMachine[Any], batches: Iterator[Buffer], now: Callable[[], Moment]) -> None:
        self._machine = machine
        self._steps = self._load(batches, now)
        self.end_offset = 0
        self.record_count = 0
        self.skipped_count = 0
        """Of kinds and versions that nobody here knows."""
        self.is_done = False

    def advance(self, budget: int) -> int:
        """Replay until the units of the budget are used up, or all of the log; what is left of them."""
        for cost in self._steps:
            budget -= cost
            if budget <= 0:
                return budget
        self.is_done = True
        return budget

    def _load(self, batches: Iterator[Buffer], now: Callable[[], Moment]) -> Iterator[int]:
        yield from self._replay(batches)
        yield from self._machine.loaded(now())

    def _replay(self, batches: Iterator[Buffer]) -> Iterator[int]:
        """The cost of each record. One batch may hold thousands."""
        for batch in batches:
            header = read_header(batch)
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
            for record in iter_records(batch, header):
                self.record_count += 1
                if header.is_control:
                    self._replay_marker(record.key, producer_id)
                elif record.key is not None:
                    decoded = self._machine.decode(record.key, record.value)
                    if decoded is not None:
                        self._machine.replay(decoded, record.offset, producer_id)
                    else:
                        self.skipped_count += 1
                yield 1 + len(record.value or b"") // _BYTES_A_UNIT
            self.end_offset = header.next_offset

    def _replay_marker(self, key: bytes | None, producer_id: int) -> None:
        if key is not None and len(key) >= _MARKER_KEY.size:
            _, marker = _MARKER_KEY.unpack_from(key)
            self._machine.end_transaction(producer_id, marker == _COMMIT_MARKER)
