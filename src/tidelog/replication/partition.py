"""One partition that this node leads: its log, its high watermark, and who waits for it to move.

In synced mode the high watermark follows what a sync round has made durable, in page-cache mode the log's end; with
followers it will be held back here as well, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from tidelog.kernel.errors import DiskError
from tidelog.log.errors import LogError
from tidelog.log.partition_log import AppendResult, PartitionLog
from tidelog.log.readable_log import LogRead
from tidelog.log.reading import Read, waiting
from tidelog.log.transactions import Marker
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.home import Home


class Partition:
    __slots__ = (
        "_numbers",
        "_pending",
        "_rounds",
        "_waiters",
        "failure",
        "high_watermark",
        "home",
        "leader_epoch",
        "log",
        "topic_id",
        "when_marked",
    )

    def __init__(self, log: PartitionLog, topic_id: bytes, leader_epoch: int, home: Home, *, is_synced: bool) -> None:
        """Not synced is page-cache mode: what is written counts."""
        self.log = log
        self.home = home
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.high_watermark = log.log_end_offset
        self.failure = ErrorCode.NONE
        """Why nobody reads or writes here any more: deleted, or on a directory that is offline."""
        self.when_marked: Callable[[Marker], None] | None = None
        """Told of each marker right after it was appended: the coordinator whose partition this is ends what it has of
        that transaction."""
        self._rounds = home.rounds if is_synced else None
        # In order of arrival, so that a simulation replays the same.
        self._waiters: dict[Callable[[Partition, int], None], None] = {}
        self._pending: list[tuple[int, int, Callable[[ErrorCode], None]]] = []
        self._numbers = 0

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
        """Up to where no transaction is open, and none has ended with a marker that is not committed."""
        transactions = self.log.transactions
        high_watermark = self.high_watermark
        if transactions is None:
            return high_watermark
        first_unstable = transactions.first_unstable_offset(high_watermark)
        return min(high_watermark, max(first_unstable, self.log.log_start_offset))

    def append(
        self, batch: bytearray | memoryview, header: BatchHeader, now_ms: int, *, from_coordinator: bool = False
    ) -> AppendResult:
        if self.failure:
            raise LogError(self.failure, f"{self.topic}-{self.index} is not served here any more")
        try:
            result = self.log.append(
                batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms, from_coordinator=from_coordinator
            )
        except DiskError as error:
            self.home.failed(error)
            raise
        if result.duplicate:
            return result
        rounds = self._rounds
        if rounds is not None:
            rounds.want(self.log, header.batch_length + 12, self._synced)
        else:
            self.high_watermark = result.last_offset + 1
            if self._waiters or self._pending:
                self._moved(header.batch_length + 12)
        return result

    def _synced(self, end_offset: int, new_bytes: int) -> None:
        if end_offset <= self.high_watermark or self.failure != ErrorCode.NONE:
            return
        self.high_watermark = end_offset
        self._moved(new_bytes)

    def _moved(self, new_bytes: int) -> None:
        pending = self._pending
        while pending and pending[0][0] <= self.high_watermark:
            heappop(pending)[2](ErrorCode.NONE)
        if self._waiters:
            self._notify(new_bytes)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool,
        committed: bool = False,
        read: Read = waiting,
        lend: bool = False,
    ) -> LogRead:
        end_offset = self.last_stable_offset if committed else self.high_watermark
        try:
            return self.log.read(
                offset, max_bytes, end_offset=end_offset, min_one_batch=min_one_batch, read=read, lend=lend
            )
        except DiskError as error:
            self.home.failed(error)
            raise

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """KIP-320: a client that knows an older or newer leader epoch is told so."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    # waiting

    def when_committed(self, end_offset: int, callback: Callable[[ErrorCode], None]) -> None:
        """Called once: with NONE when the high watermark has reached the offset, perhaps at once, or with the reason
        why it never will."""
        if self.high_watermark >= end_offset or self.failure != ErrorCode.NONE:
            callback(self.failure)
            return
        self._numbers += 1
        heappush(self._pending, (end_offset, self._numbers, callback))

    def add_waiter(self, waiter: Callable[[Partition, int], None]) -> None:
        """Called with the number of new bytes when the high watermark moves, and with 0 when the partition changes
        otherwise."""
        self._waiters[waiter] = None

    def remove_waiter(self, waiter: Callable[[Partition, int], None]) -> None:
        self._waiters.pop(waiter, None)

    def _notify(self, new_bytes: int) -> None:
        for waiter in list(self._waiters):
            waiter(self, new_bytes)

    def changed(self) -> None:
        """Trimmed, or led in another epoch: whoever waits should look again."""
        self._notify(0)

    def fail(self, code: ErrorCode) -> None:
        """Deleted or offline: everybody who waits hears of it, and nobody waits for it again."""
        self.failure = code
        self.home.rounds.forget(self.log)
        pending, self._pending = self._pending, []
        for _, _, callback in sorted(pending, key=lambda entry: entry[:2]):
            callback(code)
        self._notify(0)
