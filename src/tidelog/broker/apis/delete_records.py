"""DeleteRecords (21), versions 0-2. v2 flexible. Offset -1 is the high watermark."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import RequestContext
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from tidelog.protocol.topic_names import INTERNAL_TOPICS

_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
_Partition = DeleteRecordsResponse.DeleteRecordsPartitionResult


def handle(request: DeleteRecordsRequest, ctx: RequestContext) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            _Topic(name=topic.name, partitions=[_trim(topic.name, wanted, ctx) for wanted in topic.partitions])
            for topic in request.topics
        ]
    )


def _trim(topic: str, wanted: DeleteRecordsRequest.DeleteRecordsPartition, ctx: RequestContext) -> _Partition:
    answer = _Partition(partition_index=wanted.partition_index, low_watermark=-1)
    partition = ctx.services.partitions.get(topic, wanted.partition_index)
    if partition is None:
        answer.error_code = ctx.services.partitions.why_missing(topic, wanted.partition_index)
        return answer
    if topic in INTERNAL_TOPICS:
        answer.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return answer
    if "delete" not in partition.log.config.cleanup_policy:
        answer.error_code = ErrorCode.POLICY_VIOLATION
        return answer
    offset = partition.high_watermark if wanted.offset == -1 else wanted.offset
    if offset < 0 or offset > partition.high_watermark:
        answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return answer
    partition.log.maybe_increment_log_start(offset)
    partition.changed()
    answer.low_watermark = partition.log_start_offset
    return answer


API = Api(key=21, versions=range(0, 3), handle=handle)
