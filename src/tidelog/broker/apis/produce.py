"""Produce (0), versions 3-13. v5 log start, v8 record errors, v9 flexible, v10 leader hints (KIP-951), v12 TV2, v13
topic ids (KIP-516). Versions 0-2 are named but refused, as in Apache Kafka: older librdkafka drops compression
otherwise.

The records are a view of the read buffer: each batch is checked, patched in place and written before this returns.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.broker.produce_again import learn
from tidelog.broker.produce_answers import Committing, refuse, refused
from tidelog.broker.transactional_produce import Refusals, is_transactional
from tidelog.kernel.errors import DiskError
from tidelog.log.errors import LogError
from tidelog.protocol.batch import TRANSACTIONAL
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.replication.validate import prepare_batch

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition

_Topic = ProduceResponse.TopicProduceResponse
_Partition = ProduceResponse.PartitionProduceResponse
_NOTHING_REFUSED: Final[Refusals] = {}


def handle(request: ProduceRequest, ctx: RequestContext) -> ProduceResponse | Parked | None:
    if is_transactional(request):
        run = partial(_append_all, request, ctx)
        return ctx.services.transactional_produces.handle(request, ctx, run)
    return _append_all(request, ctx, _NOTHING_REFUSED, None)


def _append_all(
    request: ProduceRequest, ctx: RequestContext, refusals: Refusals, parked: Parked | None
) -> ProduceResponse | Parked | None:
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
                answer = refused(data.index, _missing(topic, data.index, by_id, ctx), None)
            elif refusals and (error := refusals.get((partition.topic, data.index))) is not None:
                ctx.services.metrics.topic(partition.topic).produces += 1
                answer = refuse(error, partition, ctx)
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
        return Committing(response, uncommitted, ctx).park(request.timeout_ms, parked)
    if parked is not None:
        parked.answer(response)
        return parked
    return response


def _missing(topic: ProduceRequest.TopicProduceData, index: int, by_id: bool, ctx: RequestContext) -> ErrorCode:
    if by_id and ctx.services.image.topic_by_id(topic.topic_id) is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    name = ctx.services.image.topic_names[topic.topic_id] if by_id else topic.name
    return ctx.services.partitions.why_missing(name, index)


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
        if header.attributes & TRANSACTIONAL and header.producer_id < 0:
            raise LogError(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
        result = partition.append(batch, header, now_ms)
    except (LogError, DiskError) as error:
        return refuse(error, partition, ctx)
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


API = Api(key=0, versions=range(3, 14), handle=handle, learn=learn, advertised_from=0)
