"""ListOffsets (2), versions 1-11. v2 isolation, v4 leader epoch, v6 flexible, v7 max timestamp (-3), v8 earliest
local (-4), v9 latest tiered (-5), v10 time-out, v11 earliest pending upload (-6). Without tiered storage -4 is the
log's start and -5, -6 have no offset."""

from __future__ import annotations

from functools import partial

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.kernel.errors import DiskError
from tidelog.log.errors import LogError
from tidelog.log.reading import Read, WouldBlock, at_once
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog.replication.partition import Partition

_Partition = ListOffsetsResponse.ListOffsetsPartitionResponse
_Topic = ListOffsetsResponse.ListOffsetsTopicResponse

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_LEADER_EPOCH_SINCE = 4
_NEVER = 1 << 15
_SINCE_VERSION = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


def handle(request: ListOffsetsRequest, ctx: RequestContext) -> ListOffsetsResponse | Parked:
    try:
        return ListOffsetsResponse(
            topics=[
                _Topic(
                    name=topic.name,
                    partitions=[_look_up(topic.name, wanted, request, ctx, at_once) for wanted in topic.partitions],
                )
                for topic in request.topics
            ]
        )
    except WouldBlock:
        parked = ctx.park()
        ctx.services.cold_reads.answer(parked, ctx, partial(_answer_cold, request, ctx, parked))
        return parked


async def _answer_cold(request: ListOffsetsRequest, ctx: RequestContext, parked: Parked) -> None:
    response = ListOffsetsResponse()
    for topic in request.topics:
        found = _Topic(name=topic.name)
        response.topics.append(found)
        for wanted in topic.partitions:
            action = partial(_look_up, topic.name, wanted, request, ctx)
            found.partitions.append(await ctx.services.cold_reads.run(action))
    parked.answer(response)


def _look_up(
    topic: str,
    wanted: ListOffsetsRequest.ListOffsetsPartition,
    request: ListOffsetsRequest,
    ctx: RequestContext,
    read: Read,
) -> _Partition:
    answer = _Partition(partition_index=wanted.partition_index)
    partition = ctx.services.partitions.get(topic, wanted.partition_index)
    if partition is None:
        answer.error_code = ctx.services.partitions.why_missing(topic, wanted.partition_index)
        return answer
    code = partition.check_epoch(wanted.current_leader_epoch)
    if code == ErrorCode.NONE and ctx.version < _since_version(wanted.timestamp):
        code = ErrorCode.UNSUPPORTED_VERSION
    if code != ErrorCode.NONE:
        answer.error_code = code
        return answer
    try:
        _fill(answer, partition, wanted.timestamp, request.isolation_level, read)
    except LogError as error:
        answer.error_code = error.error_code
    except DiskError as error:
        partition.home.failed(error)
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    if ctx.version < _LEADER_EPOCH_SINCE:
        answer.leader_epoch = -1
    return answer


def _since_version(timestamp: int) -> int:
    return 0 if timestamp >= 0 else _SINCE_VERSION.get(timestamp, _NEVER)


def _fill(answer: _Partition, partition: Partition, timestamp: int, isolation_level: int, read: Read) -> None:
    log = partition.log
    end = partition.last_stable_offset if isolation_level == 1 else partition.high_watermark
    if timestamp == LATEST:
        answer.offset = end
        answer.leader_epoch = partition.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.log_start_offset
        answer.leader_epoch = log.leader_epochs.epoch_for_offset(log.log_start_offset)
    elif timestamp == MAX_TIMESTAMP or timestamp >= 0:
        found = (
            log.max_timestamp_offset(read)
            if timestamp == MAX_TIMESTAMP
            else log.offset_for_timestamp(timestamp, end_offset=end, read=read)
        )
        if found is not None and found.offset < end:
            answer.timestamp = found.timestamp
            answer.offset = found.offset
            answer.leader_epoch = found.leader_epoch


API = Api(key=2, versions=range(1, 12), handle=handle)
