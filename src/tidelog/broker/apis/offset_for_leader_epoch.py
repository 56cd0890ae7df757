"""OffsetForLeaderEpoch (23), versions 2-4. v3 replica id, v4 flexible (KIP-101, KIP-320)."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import RequestContext
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

_Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
_Partition = OffsetForLeaderEpochResponse.EpochEndOffset


def handle(request: OffsetForLeaderEpochRequest, ctx: RequestContext) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            _Topic(topic=topic.topic, partitions=[_look_up(topic.topic, wanted, ctx) for wanted in topic.partitions])
            for topic in request.topics
        ]
    )


def _look_up(
    topic: str, wanted: OffsetForLeaderEpochRequest.OffsetForLeaderPartition, ctx: RequestContext
) -> _Partition:
    answer = _Partition(partition=wanted.partition)
    partition = ctx.services.partitions.get(topic, wanted.partition)
    if partition is None:
        answer.error_code = ctx.services.partitions.why_missing(topic, wanted.partition)
        return answer
    code = partition.check_epoch(wanted.current_leader_epoch)
    if code != ErrorCode.NONE:
        answer.error_code = code
        return answer
    answer.leader_epoch, answer.end_offset = partition.log.leader_epochs.end_offset_for(
        wanted.leader_epoch, partition.log.log_end_offset
    )
    return answer


API = Api(key=23, versions=range(2, 5), handle=handle)
