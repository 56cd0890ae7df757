"""The records of one partition that wait to be sent, and when a batch of them is due. No I/O."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.protocol.batch import RecordInput

_RECORD_OVERHEAD_BYTES: Final = 24


class RecordMetadata(NamedTuple):
    topic: str
    partition: int
    offset: int
    """-1 when the broker was not asked to say (acks=0)."""
    timestamp: int


class Pending(NamedTuple):
    record: RecordInput
    size: int
    sent: asyncio.Future[RecordMetadata]


def estimated_size(record: RecordInput) -> int:
    headers = sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + _RECORD_OVERHEAD_BYTES


@dataclass(slots=True)
class Accumulator:
    """A queue of records with the moment of its oldest one; `take` cuts off a batch."""

    batch_bytes: int
    linger_s: float
    _queue: deque[Pending] = field(default_factory=deque)
    _size: int = 0
    _oldest_s: float = 0.0

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, pending: Pending, now_s: float) -> None:
        if not self._queue:
            self._oldest_s = now_s
        self._queue.append(pending)
        self._size += pending.size

    def wait_s(self, now_s: float, *, flush: bool) -> float | None:
        """How long until a batch is due: 0 now, None while there is nothing."""
        if not self._queue:
            return None
        if flush or self._size >= self.batch_bytes:
            return 0.0
        return max(0.0, self._oldest_s + self.linger_s - now_s)

    def take(self, now_s: float) -> list[Pending]:
        """As many records as fit a batch, one at least."""
        batch: list[Pending] = []
        size = 0
        while self._queue and (not batch or size + self._queue[0].size <= self.batch_bytes):
            pending = self._queue.popleft()
            size += pending.size
            batch.append(pending)
        self._size -= size
        self._oldest_s = now_s
        return batch

    def take_all(self) -> list[Pending]:
        batch = list(self._queue)
        self._queue.clear()
        self._size = 0
        return batch
