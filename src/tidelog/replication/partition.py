"""One partition that this node leads: its log, its high watermark, and who waits for it to move.

With one replica in page-cache mode the high watermark follows the log's end at once; syncing and followers will hold it
back here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.log.partition_log import AppendResult, LogRead, PartitionLog
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.errors import ErrorCode


class Partition:
    __slots__ = ("_waiters", "high_watermark", "is_deleted", "leader_epoch", "log", "topic_id")

    def __init__(self, log: PartitionLog, topic_id: bytes, leader_epoch: int) -> None:
        self.log = log
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.high_watermark = log.log_end_offset
        self.is_deleted = False
        # In order of arrival, so that a simulation replays the same.
        self._waiters: dict[Callable[[Partition, int], None], None] = {}

    @property
    def topic(self) -> str:
        return self.log.topic

    @property
    def index(self) -> int:
        return self.log.partition

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    def append(self, batch: bytearray | memoryview, header: BatchHeader, now_ms: int) -> AppendResult:
        result = self.log.append(batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if not result.duplicate:
            self.high_watermark = self.log.log_end_offset
            if self._waiters:
                self._notify(header.batch_length + 12)
        return result

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> LogRead:
        return self.log.read(offset, max_bytes, end_offset=self.high_watermark, min_one_batch=min_one_batch)

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """KIP-320: a client that knows an older or newer leader epoch is told so."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    # waiting

    def add_waiter(self, waiter: Callable[[Partition, int], None]) -> None:
        """Called with the number of new bytes at each append, and with 0 when the partition changes otherwise."""
        self._waiters[waiter] = None

    def remove_waiter(self, waiter: Callable[[Partition, int], None]) -> None:
        self._waiters.pop(waiter, None)

    def _notify(self, new_bytes: int) -> None:
        for waiter in list(self._waiters):
            waiter(self, new_bytes)

    def changed(self) -> None:
        """Deleted, trimmed, or led in another epoch: whoever waits should look again."""
        self._notify(0)
