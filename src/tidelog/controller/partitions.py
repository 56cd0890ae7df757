"""Adding partitions to a topic."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tidelog.controller.decision import Decision
from tidelog.controller.placement import DirectoryChooser, NotEnoughBrokers, place_replicas, placed_record
from tidelog.controller.topics import PARTITIONS_PER_REQUEST_MAX
from tidelog.metadata.image import MetadataImage, TopicImage
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

_Wanted = CreatePartitionsRequest.CreatePartitionsTopic
_Result = CreatePartitionsResponse.CreatePartitionsTopicResult


def create_partitions(request: CreatePartitionsRequest, image: MetadataImage) -> Decision:
    decision = Decision(CreatePartitionsResponse())
    times = Counter(topic.name for topic in request.topics)
    directories = DirectoryChooser(image)
    for topic in {topic.name: topic for topic in request.topics}.values():
        if times[topic.name] > 1:
            refusal: tuple[int, str] | list[Any] = (
                ErrorCode.INVALID_REQUEST,
                f"{topic.name} is named twice in one request",
            )
        else:
            refusal = _grow(topic, image, directories)
        if isinstance(refusal, list):
            if not request.validate_only:
                decision.records += refusal
            decision.response.results.append(_Result(name=topic.name))
        else:
            code, message = refusal
            decision.response.results.append(_Result(name=topic.name, error_code=code, error_message=message))
    return decision


def _grow(wanted: _Wanted, image: MetadataImage, directories: DirectoryChooser) -> tuple[int, str] | list[Any]:
    topic = image.topics.get(wanted.name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    have = len(topic.partitions)
    if wanted.count == have:
        return ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s)."
    if wanted.count < have:
        return (
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {have} partition(s); {wanted.count} would not be an increase.",
        )
    if wanted.count - have > PARTITIONS_PER_REQUEST_MAX:
        return ErrorCode.POLICY_VIOLATION, f"At most {PARTITIONS_PER_REQUEST_MAX} partitions are created at once."
    new = range(have, wanted.count)
    if wanted.assignments is not None:
        return _assigned(wanted, topic, image, new, directories)
    factor = len(topic.partitions[0].replicas)
    try:
        replicas = place_replicas(image, new, factor)
    except NotEnoughBrokers as error:
        return ErrorCode.INVALID_REPLICATION_FACTOR, str(error)
    return [placed_record(topic.topic_id, index, brokers, directories) for index, brokers in sorted(replicas.items())]


def _assigned(
    wanted: _Wanted, topic: TopicImage, image: MetadataImage, new: range, directories: DirectoryChooser
) -> tuple[int, str] | list[Any]:
    given = [assignment.broker_ids for assignment in wanted.assignments or ()]
    if len(given) != len(new):
        return (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(new)} partition(s) would be added, but {len(given)} assignment(s) were given.",
        )
    factor = len(topic.partitions[0].replicas)
    for brokers in given:
        if len(brokers) != factor or len(set(brokers)) != factor or any(b not in image.brokers for b in brokers):
            return (
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The assignment {brokers} is not {factor} different known broker(s).",
            )
    return [
        placed_record(topic.topic_id, index, list(brokers), directories)
        for index, brokers in zip(new, given, strict=True)
    ]
