"""Adding partitions to a topic, and electing leaders when a node comes back, or none when it goes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tidelog.controller.decision import Decision
from tidelog.controller.placement import NotEnoughBrokers, place_replicas, placed_record
from tidelog.controller.topics import PARTITIONS_PER_REQUEST_MAX
from tidelog.metadata.image import NO_LEADER, MetadataImage, TopicImage
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import records_metadata as r
from tidelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

_Wanted = CreatePartitionsRequest.CreatePartitionsTopic
_Result = CreatePartitionsResponse.CreatePartitionsTopicResult


def create_partitions(request: CreatePartitionsRequest, image: MetadataImage) -> Decision:
    decision = Decision(CreatePartitionsResponse())
    times = Counter(topic.name for topic in request.topics)
    for topic in {topic.name: topic for topic in request.topics}.values():
        if times[topic.name] > 1:
            refusal: tuple[int, str] | list[Any] = (
                ErrorCode.INVALID_REQUEST,
                f"{topic.name} is named twice in one request",
            )
        else:
            refusal = _grow(topic, image)
        if isinstance(refusal, list):
            if not request.validate_only:
                decision.records += refusal
            decision.response.results.append(_Result(name=topic.name))
        else:
            code, message = refusal
            decision.response.results.append(_Result(name=topic.name, error_code=code, error_message=message))
    return decision


def _grow(wanted: _Wanted, image: MetadataImage) -> tuple[int, str] | list[Any]:
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
        return _assigned(wanted, topic, image, new)
    factor = len(topic.partitions[0].replicas)
    try:
        replicas = place_replicas(image, new, factor)
    except NotEnoughBrokers as error:
        return ErrorCode.INVALID_REPLICATION_FACTOR, str(error)
    return [placed_record(topic.topic_id, index, brokers, image) for index, brokers in sorted(replicas.items())]


def _assigned(wanted: _Wanted, topic: TopicImage, image: MetadataImage, new: range) -> tuple[int, str] | list[Any]:
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
        placed_record(topic.topic_id, index, list(brokers), image) for index, brokers in zip(new, given, strict=True)
    ]


def elect_at_start(image: MetadataImage, node_id: int) -> list[Any]:
    """A node that comes back leads its partitions in a new epoch: what a crash cut off is told apart from what
    follows. It is the only replica, so in sync again, and nobody else is left who could have led (KIP-966)."""
    return [
        r.PartitionChangeRecord(
            partition_id=index,
            topic_id=topic.topic_id,
            leader=node_id,
            isr=None if node_id in state.isr else [node_id],
            leader_recovery_state=0 if state.leader_recovery_state else -1,
            eligible_leader_replicas=[] if state.eligible_leaders else None,
            last_known_elr=[] if state.last_known_leaders else None,
        )
        for _, topic in sorted(image.topics.items())
        for index, state in sorted(topic.partitions.items())
        if node_id in state.replicas
    ]


def resign(image: MetadataImage, node_id: int) -> list[Any]:
    """The partitions that the node leads have no leader. The last replica in sync stays that."""
    return [
        r.PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=NO_LEADER)
        for _, topic in sorted(image.topics.items())
        for index, state in sorted(topic.partitions.items())
        if state.leader == node_id
    ]
