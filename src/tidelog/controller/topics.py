"""Creating and deleting topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from random import Random
from typing import Final, TypeAlias

from tidelog.controller.decision import Decision
from tidelog.controller.placement import DirectoryChooser, NotEnoughBrokers, place_replicas, placed_record
from tidelog.metadata.config import BrokerValues
from tidelog.metadata.config.alter import Refusal, overrides_of_new_topic
from tidelog.metadata.config.describe import describe_topic
from tidelog.metadata.image import TOPIC_RESOURCE, MetadataImage, TopicImage
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import records_metadata as r
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.topic_names import collides, complaint_about_name
from tidelog.protocol.uuids import ZERO_UUID, random_uuid

PARTITIONS_PER_REQUEST_MAX: Final = 10_000

_Topic = CreateTopicsRequest.CreatableTopic
_Result = CreateTopicsResponse.CreatableTopicResult
_Deleted = DeleteTopicsResponse.DeletableTopicResult

_Described: TypeAlias = dict[frozenset[tuple[str, str]], list[CreateTopicsResponse.CreatableTopicConfigs]]
"""Thousands of topics in one request mostly have the same configs: described once, a third of a millisecond."""


class _Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def create_topics(request: CreateTopicsRequest, image: MetadataImage, values: BrokerValues, random: Random) -> Decision:
    times = Counter(topic.name for topic in request.topics)
    total = sum(_partition_count(topic, values) for topic in request.topics)
    decision = Decision(CreateTopicsResponse())
    taken: dict[str, None] = {}
    described: _Described = {}
    directories = DirectoryChooser(image)
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if times[topic.name] > 1:
                raise _Refused(ErrorCode.INVALID_REQUEST, f"{topic.name} is named twice in one request")
            if total > PARTITIONS_PER_REQUEST_MAX:
                raise _Refused(
                    ErrorCode.POLICY_VIOLATION,
                    f"{total} partitions in one request; at most {PARTITIONS_PER_REQUEST_MAX} are created at once",
                )
            records, result = _create(topic, image, values, random, taken, directories, described)
        except _Refused as refused:
            result = _Result(name=topic.name, error_code=refused.code, error_message=refused.message)
        else:
            taken[topic.name] = None
            if not request.validate_only:
                decision.records += records
        decision.response.topics.append(result)
    return decision


def _partition_count(topic: _Topic, values: BrokerValues) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return int(values["num.partitions"]) if topic.num_partitions == -1 else topic.num_partitions  # type: ignore[arg-type]


def _create(
    topic: _Topic,
    image: MetadataImage,
    values: BrokerValues,
    random: Random,
    taken: Collection[str],
    directories: DirectoryChooser,
    described: _Described,
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
        records.append(placed_record(topic_id, index, brokers, directories))
    key = frozenset(overrides.items())
    configs = described.get(key)
    if configs is None:
        configs = described[key] = _described(overrides, values)
    result = _Result(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=configs,
    )
    return records, result


def _check_name(name: str, image: MetadataImage, taken: Collection[str]) -> None:
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
    partitions = _partition_count(topic, values)
    factor = topic.replication_factor
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
    wanted: list[tuple[str | None, bytes]] = (
        [(name, ZERO_UUID) for name in request.topic_names]
        if by_names
        else [(topic.name, topic.topic_id) for topic in request.topics]
    )
    times = Counter(wanted)
    found = {key: _find(image, *key) for key in times}
    uses = Counter(topic.topic_id for topic in found.values() if topic is not None)
    decision = Decision(DeleteTopicsResponse())
    for key, topic in found.items():
        name, topic_id = key
        is_twice = times[key] > 1 or (topic is not None and uses[topic.topic_id] > 1)
        try:
            topic = _deletable(name, topic_id, topic, is_twice)
        except _Refused as refused:
            result = _Deleted(name=name, topic_id=topic_id, error_code=refused.code, error_message=refused.message)
        else:
            result = _Deleted(name=topic.name, topic_id=topic.topic_id)
            decision.records.append(r.RemoveTopicRecord(topic_id=topic.topic_id))
        decision.response.responses.append(result)
    return decision


def _find(image: MetadataImage, name: str | None, topic_id: bytes) -> TopicImage | None:
    return image.topic_by_id(topic_id) if name is None else image.topics.get(name)


def _deletable(name: str | None, topic_id: bytes, topic: TopicImage | None, is_twice: bool) -> TopicImage:
    if is_twice:
        raise _Refused(ErrorCode.INVALID_REQUEST, "The topic is named twice in one request.")
    if (name is None) == (topic_id == ZERO_UUID):
        raise _Refused(ErrorCode.INVALID_REQUEST, "Name a topic by its name or by its id: by one of the two.")
    if topic is None:
        missing = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise _Refused(missing, "This server does not host this topic.")
    return topic
