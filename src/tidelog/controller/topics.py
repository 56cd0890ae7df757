"""Creating and deleting topics."""

from __future__ import annotations

from random import Random
from typing import Final

from tidelog.controller.decision import Decision
from tidelog.controller.placement import NotEnoughBrokers, place_replicas, placed_record
from tidelog.metadata.config import BrokerValues
from tidelog.metadata.config.alter import Refusal, overrides_of_new_topic
from tidelog.metadata.config.describe import describe_topic
from tidelog.metadata.image import TOPIC_RESOURCE, MetadataImage
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import records_metadata as r
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.topic_names import collides, complaint_about_name
from tidelog.protocol.uuids import ZERO_UUID, random_uuid

PARTITIONS_PER_REQUEST_MAX: Final = 10_000

_Topic = CreateTopicsRequest.CreatableTopic
_Result = CreateTopicsResponse.CreatableTopicResult


class _Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def create_topics(request: CreateTopicsRequest, image: MetadataImage, values: BrokerValues, random: Random) -> Decision:
    names = [topic.name for topic in request.topics]
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) != len(names) else set()
    total = sum(max(topic.num_partitions, len(topic.assignments), 0) for topic in request.topics)
    decision = Decision(CreateTopicsResponse())
    taken: set[str] = set()
    for topic in request.topics:
        try:
            if topic.name in twice:
                raise _Refused(ErrorCode.INVALID_REQUEST, f"{topic.name} is named twice in one request")
            if total > PARTITIONS_PER_REQUEST_MAX:
                raise _Refused(
                    ErrorCode.POLICY_VIOLATION,
                    f"{total} partitions in one request; at most {PARTITIONS_PER_REQUEST_MAX} are created at once",
                )
            records, result = _create(topic, image, values, random, taken)
        except _Refused as refused:
            result = _Result(name=topic.name, error_code=refused.code, error_message=refused.message)
        else:
            taken.add(topic.name)
            if request.validate_only:
                result.topic_id = ZERO_UUID
            else:
                decision.records += records
        decision.response.topics.append(result)
    return decision


def _create(
    topic: _Topic, image: MetadataImage, values: BrokerValues, random: Random, taken: set[str]
) -> tuple[list[object], _Result]:
    _check_name(topic.name, image, taken)
    overrides = overrides_of_new_topic({config.name: config.value for config in topic.configs})
    if isinstance(overrides, Refusal):
        raise _Refused(overrides.code, overrides.message)
    replicas = _replicas(topic, image, values)
    topic_id = random_uuid(random)
    records: list[object] = [r.TopicRecord(name=topic.name, topic_id=topic_id)]
    for name, value in sorted(overrides.items()):
        records.append(r.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value))
    for index, brokers in sorted(replicas.items()):
        records.append(placed_record(topic_id, index, brokers, image))
    result = _Result(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=_described(overrides, values),
    )
    return records, result


def _check_name(name: str, image: MetadataImage, taken: set[str]) -> None:
    if complaint := complaint_about_name(name):
        raise _Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, complaint)
    if name in image.topics or name in taken:
        raise _Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if "." in name or "_" in name:
        for other in (*image.topics, *taken):
            if collides(name, other):
                raise _Refused(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"Topic '{name}' collides with existing topic: {other} ('.' and '_' are one in metric names)",
                )


def _replicas(topic: _Topic, image: MetadataImage, values: BrokerValues) -> dict[int, list[int]]:
    if topic.assignments:
        return _assigned(topic, image)
    partitions = topic.num_partitions
    factor = topic.replication_factor
    if partitions == -1:
        partitions = int(values["num.partitions"])  # type: ignore[arg-type]
    if factor == -1:
        factor = int(values["default.replication.factor"])  # type: ignore[arg-type]
    if partitions <= 0:
        raise _Refused(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if factor <= 0:
        raise _Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0, or -1 for the default."
        )
    try:
        return place_replicas(image, range(partitions), factor)
    except NotEnoughBrokers as error:
        raise _Refused(ErrorCode.INVALID_REPLICATION_FACTOR, str(error)) from None


def _assigned(topic: _Topic, image: MetadataImage) -> dict[int, list[int]]:
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise _Refused(
            ErrorCode.INVALID_REQUEST, "A manual assignment leaves both num_partitions and replication_factor at -1."
        )
    found = {assignment.partition_index: assignment.broker_ids for assignment in topic.assignments}
    if sorted(found) != list(range(len(topic.assignments))):
        raise _Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The partitions of a manual assignment must be 0, 1, 2 and so on."
        )
    sizes = {len(brokers) for brokers in found.values()}
    for index, brokers in sorted(found.items()):
        unknown = [broker for broker in brokers if broker not in image.brokers]
        if not brokers or len(set(brokers)) != len(brokers) or unknown or len(sizes) != 1:
            raise _Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Partition {index} is assigned to {brokers}: each replica once, on known brokers, "
                "as many for each partition.",
            )
    return {index: list(brokers) for index, brokers in found.items()}


def _described(overrides: dict[str, str], values: BrokerValues) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
    return [
        CreateTopicsResponse.CreatableTopicConfigs(
            name=config.name,
            value=config.value,
            read_only=config.read_only,
            config_source=int(config.source),
            is_sensitive=config.sensitive,
        )
        for config in describe_topic(overrides, values)
    ]


def delete_topics(request: DeleteTopicsRequest, image: MetadataImage, *, by_names: bool) -> Decision:
    shape = DeleteTopicsResponse.DeletableTopicResult
    decision = Decision(DeleteTopicsResponse())
    wanted = (
        [(name, ZERO_UUID) for name in request.topic_names]
        if by_names
        else [(topic.name, topic.topic_id) for topic in request.topics]
    )
    gone: set[bytes] = set()
    for name, topic_id in wanted:
        if name is not None:
            topic = image.topics.get(name)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic_id != ZERO_UUID:
                result = shape(name=name, topic_id=topic_id, error_code=ErrorCode.INVALID_REQUEST)
                result.error_message = "Name a topic by its name or by its id, not by both."
                decision.response.responses.append(result)
                continue
        else:
            topic = image.topic_by_id(topic_id)
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        if topic is None:
            result = shape(name=name, topic_id=topic_id, error_code=missing)
            result.error_message = "This server does not host this topic."
        else:
            result = shape(name=topic.name, topic_id=topic.topic_id)
            if topic.topic_id not in gone:
                gone.add(topic.topic_id)
                decision.records.append(r.RemoveTopicRecord(topic_id=topic.topic_id))
        decision.response.responses.append(result)
    return decision
