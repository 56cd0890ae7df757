"""DescribeTopicPartitions (75), version 0 (KIP-966): topics in order of their names, in pages."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.apis.metadata import TOPIC_OPERATIONS
from tidelog.broker.context import RequestContext
from tidelog.metadata.image import NO_LEADER, PartitionState
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from tidelog.protocol.topic_names import INTERNAL_TOPICS, complaint_about_name

_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition


def handle(request: DescribeTopicPartitionsRequest, ctx: RequestContext) -> DescribeTopicPartitionsResponse:
    image = ctx.services.image
    names = sorted({topic.name for topic in request.topics} or image.topics)
    first_partition = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            first_partition = request.cursor.partition_index
    # At least one: a page without a partition would have the client ask for ever.
    room = max(
        min(request.response_partition_limit, ctx.services.config.integer("max.request.partition.size.limit")), 1
    )
    response = DescribeTopicPartitionsResponse(next_cursor=None)
    for name in names:
        if room <= 0:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            code = (
                ErrorCode.INVALID_TOPIC_EXCEPTION
                if complaint_about_name(name)
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            response.topics.append(_Topic(error_code=code, name=name))
            continue
        indexes = [index for index in sorted(topic.partitions) if index >= first_partition]
        response.topics.append(
            _Topic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=name in INTERNAL_TOPICS,
                topic_authorized_operations=TOPIC_OPERATIONS,
                partitions=[_partition(index, topic.partitions[index]) for index in indexes[:room]],
            )
        )
        if len(indexes) > room:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                topic_name=name, partition_index=indexes[room]
            )
            break
        room -= len(indexes)
        first_partition = 0
    return response


def _partition(index: int, state: PartitionState) -> _Partition:
    return _Partition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else ErrorCode.NONE,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.eligible_leaders),
        last_known_elr=list(state.last_known_leaders),
    )


API = Api(key=75, versions=range(0, 1), handle=handle)
