"""DescribeProducers (61), version 0: who writes to a partition, and since which offset in a transaction (KIP-664)."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import RequestContext
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

_Topic = DescribeProducersResponse.TopicResponse
_Partition = DescribeProducersResponse.PartitionResponse
_Producer = DescribeProducersResponse.ProducerState


def handle(request: DescribeProducersRequest, ctx: RequestContext) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            _Topic(name=topic.name, partitions=[_describe(topic.name, index, ctx) for index in topic.partition_indexes])
            for topic in request.topics
        ]
    )


def _describe(topic: str, index: int, ctx: RequestContext) -> _Partition:
    partition = ctx.services.partitions.get(topic, index)
    if partition is None:
        code = ctx.services.partitions.why_missing(topic, index)
        return _Partition(partition_index=index, error_code=code, error_message=ErrorCode(code).name)
    producers = [
        _Producer(
            producer_id=producer_id,
            producer_epoch=state.epoch,
            last_sequence=state.batches[-1].last_sequence if state.batches else -1,
            last_timestamp=state.last_timestamp,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_start_offset=state.current_txn_first_offset,
        )
        for producer_id, state in partition.log.producers.items()
    ]
    return _Partition(partition_index=index, active_producers=producers)


API = Api(key=61, versions=range(0, 1), handle=handle)
