"""Bringing a state machine to where the log is, in slices: a long log must not stop the loop."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

from tidelog.coordinator.decision import StateMachine
from tidelog.kernel.ports import Buffer
from tidelog.protocol.batch import NO_PRODUCER_ID, iter_records, read_header

_MARKER_KEY: Final = Struct(">hh")
_COMMIT_MARKER: Final = 1


class Loading:
    def __init__(self, machine: StateMachine[Any], batches: Iterator[Buffer]) -> None:
        self._machine = machine
        self._batches = batches
        self.end_offset = 0
        self.record_count = 0
        self.skipped_count = 0
        """Of kinds and versions that nobody here knows."""

    def advance(self, record_budget: int) -> bool:
        """Replay until the budget is used up; whether the end of the log was reached."""
        until = self.record_count + record_budget
        for batch in self._batches:
            self._replay(batch)
            if self.record_count >= until:
                return False
        return True

    def _replay(self, batch: Buffer) -> None:
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
        self.end_offset = header.next_offset

    def _replay_marker(self, key: bytes | None, producer_id: int) -> None:
        if key is not None and len(key) >= _MARKER_KEY.size:
            _, marker = _MARKER_KEY.unpack_from(key)
            self._machine.end_transaction(producer_id, marker == _COMMIT_MARKER)
