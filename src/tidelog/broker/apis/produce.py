"""Produce (0), versions 3-13. v5 log start, v8 record errors, v9 flexible, v10 leader hints (KIP-951), v12 TV2, v13
topic ids (KIP-516). Versions 0-2 are named but refused, as in Apache Kafka: older librdkafka drops compression
otherwise.

The records are a view of the read buffer: each batch is checked, patched in place and written before this returns.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.broker.deadlines import Deadline
from tidelog.kernel.errors import DiskError
from tidelog.log.errors import LogError
from tidelog.protocol.batch import TRANSACTIONAL
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.replication.validate import prepare_batch

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition

_log = logging.getLogger("tidelog.produce")
_Topic = ProduceResponse.TopicProduceResponse
_Partition = ProduceResponse.PartitionProduceResponse


def handle(request: ProduceRequest, ctx: RequestContext) -> ProduceResponse | Parked | None:
    now_ms = ctx.services.clock.wall_ms()
    by_id = ctx.version >= 13
    response = ProduceResponse()
    failed = False
    uncommitted: list[tuple[Partition, int, _Partition]] = []
    for topic in request.topic_data:
        answers = []
        for data in topic.partition_data:
            partitions = ctx.services.partitions
            if by_id:
                partition = partitions.get_by_id(topic.topic_id, data.index)
            else:
                partition = partitions.get(topic.name, data.index)
            if partition is None:
                answer = _refused(data.index, _missing(topic, by_id, ctx), None)
            else:
                answer = _append(partition, data.records, request, ctx, now_ms, uncommitted)
            failed = failed or answer.error_code != ErrorCode.NONE
            answers.append(answer)
        response.responses.append(_Topic(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    if request.acks == 0:
        if failed:
            # Nobody listens for an answer; closing is the only way to tell (as Kafka does).
            ctx.connection.close()
        return None
    if uncommitted:
        return _Waiting(response, uncommitted, ctx).park(request.timeout_ms)
    return response


class _Waiting:
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

    def park(self, timeout_ms: int) -> Parked:
        parked = self._parked = self._ctx.park()
        parked.when_dropped(self._end)
        self._deadline = self._ctx.services.deadlines.after(max(timeout_ms, 0) / 1000, self._timed_out)
        for partition, end_offset, answer in self._uncommitted:
            partition.when_committed(end_offset, partial(self._committed, answer))
        return parked

    def _committed(self, answer: _Partition, code: ErrorCode) -> None:
        if self._parked is None:
            return
        if code is not ErrorCode.NONE:
            _refuse(answer, code)
        self._open -= 1
        if self._open == 0:
            self._answer()

    def _timed_out(self) -> None:
        for partition, end_offset, answer in self._uncommitted:
            if partition.high_watermark < end_offset and answer.error_code == ErrorCode.NONE:
                # What was written stays, and may yet be committed: the client cannot know.
                _refuse(answer, ErrorCode.REQUEST_TIMED_OUT)
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


def _refuse(answer: _Partition, code: ErrorCode) -> None:
    answer.error_code = code
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1


def _missing(topic: ProduceRequest.TopicProduceData, by_id: bool, ctx: RequestContext) -> ErrorCode:
    if by_id and ctx.services.image.topic_by_id(topic.topic_id) is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _append(
    partition: Partition,
    records: bytes | memoryview | None,
    request: ProduceRequest,
    ctx: RequestContext,
    now_ms: int,
    uncommitted: list[tuple[Partition, int, _Partition]],
) -> _Partition:
    counters = ctx.services.metrics.topic(partition.topic)
    counters.produces += 1
    try:
        _check_acks(request, partition)
        if not isinstance(records, memoryview):
            raise LogError(ErrorCode.INVALID_RECORD, "the request holds no records for this partition")
        batch, header = prepare_batch(records, partition.log.config, now_ms)
        if header.attributes & TRANSACTIONAL:
            raise LogError(ErrorCode.INVALID_TXN_STATE, "transactions are not supported yet")
        result = partition.append(batch, header, now_ms)
    except LogError as error:
        counters.failed_produces += 1
        _log.info("refused a batch for %s-%d from %s: %s", partition.topic, partition.index, ctx.client_host, error)
        return _refused(partition.index, error.error_code, str(error))
    except DiskError as error:
        counters.failed_produces += 1
        _log.error("cannot write %s-%d: %s", partition.topic, partition.index, error)
        return _refused(partition.index, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    counters.messages_in += header.record_count
    counters.bytes_in += len(records)
    answer = _Partition(
        index=partition.index,
        base_offset=result.base_offset,
        log_append_time_ms=result.timestamp if header.is_append_time else -1,
        log_start_offset=partition.log_start_offset,
    )
    if request.acks == -1 and partition.high_watermark <= result.last_offset:
        uncommitted.append((partition, result.last_offset + 1, answer))
    return answer


def _check_acks(request: ProduceRequest, partition: Partition) -> None:
    if request.acks not in (-1, 0, 1):
        raise LogError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}: only 0, 1 and -1 (all) are allowed")
    in_sync = 1
    if request.acks == -1 and partition.log.config.min_insync_replicas > in_sync:
        raise LogError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{in_sync} replica is in sync; min.insync.replicas is {partition.log.config.min_insync_replicas}",
        )


def _refused(index: int, code: int, message: str | None) -> _Partition:
    return _Partition(index=index, error_code=code, base_offset=-1, error_message=message)


API = Api(key=0, versions=range(3, 14), handle=handle, advertised_from=0)
