"""DescribeProducers (61), version 0: who writes to a partition, and since which offset in a transaction (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.coordinator.chores import Work
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from tidelog.replication.partitions import Partitions

_Topic = DescribeProducersResponse.TopicResponse
_Partition = DescribeProducersResponse.PartitionResponse
_Producer = DescribeProducersResponse.ProducerState


def handle(request: DescribeProducersRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()
    # Tens of thousands of producers may have written to a partition: in slices, with what else is asked of that kind.
    chores = ctx.services.transaction_coordinator.runtime.chores
    chores.begin(describing(request, ctx.services.partitions, parked.answer))
    return parked


def describing(
    request: DescribeProducersRequest, partitions: Partitions, answer: Callable[[DescribeProducersResponse], None]
) -> Work[None]:
    response = DescribeProducersResponse()
    for topic in request.topics:
        described = _Topic(name=topic.name)
        response.topics.append(described)
        for index in topic.partition_indexes:
            partition = yield from _describe(topic.name, index, partitions)
            described.partitions.append(partition)
    answer(response)


def _describe(topic: str, index: int, partitions: Partitions) -> Work[_Partition]:
    partition = partitions.get(topic, index)
    yield 5
    if partition is None:
        code = partitions.why_missing(topic, index)
        return _Partition(partition_index=index, error_code=code, error_message=ErrorCode(code).name)
    producers: list[_Producer] = []
    for producer_id, state in list(partition.log.producers.items()):
        producers.append(
            _Producer(
                producer_id=producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.batches[-1].last_sequence if state.batches else -1,
                last_timestamp=state.last_timestamp,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=state.current_txn_first_offset,
            )
        )
        yield 2
    return _Partition(partition_index=index, active_producers=producers)


API = Api(key=61, versions=range(0, 1), handle=handle)
