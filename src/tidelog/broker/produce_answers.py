"""What Produce answers when it cannot answer at once with success: refusals, and answers that wait to be committed."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.context import Parked, RequestContext
from tidelog.broker.deadlines import Deadline
from tidelog.kernel.errors import DiskError
from tidelog.log.errors import LogError
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition

_log = logging.getLogger("tidelog.produce")
_Partition = ProduceResponse.PartitionProduceResponse


def refused(index: int, code: int, message: str | None) -> _Partition:
    return _Partition(index=index, error_code=code, base_offset=-1, error_message=message)


def refuse(error: LogError | DiskError, partition: Partition, ctx: RequestContext) -> _Partition:
    ctx.services.metrics.topic(partition.topic).failed_produces += 1
    if isinstance(error, DiskError):
        _log.error("cannot write %s-%d: %s", partition.topic, partition.index, error)
        return refused(partition.index, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    _log.info("refused a batch for %s-%d from %s: %s", partition.topic, partition.index, ctx.client_host, error)
    return refused(partition.index, error.error_code, str(error))


class Committing:
    """An answer with acks=all that waits for the high watermarks of its partitions."""

    __slots__ = ("_ctx", "_deadline", "_open", "_parked", "_response", "_uncommitted")

    def __init__(
        self, response: ProduceResponse, uncommitted: list[tuple[Partition, int, _Partition]], ctx: RequestContext
    ) -> None:
        self._response = response
        self._uncommitted = uncommitted
        self._ctx = ctx
        self._open = len(uncommitted)
        self._parked: Parked | None = None
        self._deadline: Deadline | None = None

    def park(self, timeout_ms: int, parked: Parked | None = None) -> Parked:
        """In the place that was taken for it, or the next one."""
        parked = self._parked = parked or self._ctx.park()
        parked.when_dropped(self._end)
        self._deadline = self._ctx.services.deadlines.after(max(timeout_ms, 0) / 1000, self._timed_out)
        for partition, end_offset, answer in self._uncommitted:
            partition.when_committed(end_offset, partial(self._committed, answer))
        return parked

    def _committed(self, answer: _Partition, code: ErrorCode) -> None:
        if self._parked is None:
            return
        if code is not ErrorCode.NONE:
            _fail(answer, code)
        self._open -= 1
        if self._open == 0:
            self._answer()

    def _timed_out(self) -> None:
        for partition, end_offset, answer in self._uncommitted:
            if partition.high_watermark < end_offset and answer.error_code == ErrorCode.NONE:
                # What was written stays, and may yet be committed: the client cannot know.
                _fail(answer, ErrorCode.REQUEST_TIMED_OUT)
        self._answer()

    def _answer(self) -> None:
        parked = self._parked
        self._end()
        if parked is not None:
            parked.answer(self._response)

    def _end(self) -> None:
        self._parked = None
        if self._deadline is not None:
            self._deadline.cancel()


def _fail(answer: _Partition, code: ErrorCode) -> None:
    answer.error_code = code
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
