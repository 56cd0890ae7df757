"""What the coordinators need of the log below an internal partition; the broker implements it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from tidelog.kernel.errors import DiskError
from tidelog.kernel.ports import Buffer
from tidelog.log.errors import LogError
from tidelog.protocol.errors import ErrorCode


class Producer(NamedTuple):
    """Whose transaction a batch belongs to."""

    producer_id: int
    epoch: int


class ShardLog(Protocol):
    @property
    def end_offset(self) -> int: ...

    def append(self, records: list[tuple[bytes, bytes | None]], wall_ms: int, producer: Producer | None = None) -> int:
        """Append one batch (base sequence 0, create time; producer id and epoch -1, or those of the transaction that it
        is part of) and give the offset after its last record. LogError or DiskError when nothing of it was written."""
        ...

    def when_committed(self, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call back once, perhaps at once: NONE when the high watermark has reached the offset, else why it will not
        (leadership lost, directory offline)."""
        ...

    def read_all(self) -> Iterator[Buffer]:
        """Every whole batch from the start of the log to its end, for loading. LogError, DiskError or ProtocolError
        when it cannot be read."""
        ...


def append_error_code(error: LogError | DiskError) -> ErrorCode:
    return error.error_code if isinstance(error, LogError) else ErrorCode.KAFKA_STORAGE_ERROR


_UNAVAILABLE = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT}
)
_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE})


def coordinator_error(code: ErrorCode) -> ErrorCode:
    """What a client of a coordinator is told when the log below it failed: it knows nothing of that log."""
    if code in _UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in _MOVED:
        return ErrorCode.NOT_COORDINATOR
    if code in TOO_LARGE:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return code
