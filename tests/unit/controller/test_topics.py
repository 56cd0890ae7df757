"""Creating and deleting topics: the records of each decision, and each refusal with Kafka's code and a sentence.

The codes were compared with a running Apache Kafka 4.3.1."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.unit.controller.images import DIRECTORY_ID, Cluster, broker_values
from tidelog.controller.decision import Decision
from tidelog.controller.topics import PARTITIONS_PER_REQUEST_MAX, create_topics, delete_topics
from tidelog.metadata.image import TOPIC_RESOURCE
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import records_metadata as r
from tidelog.protocol.messages.create_topics import CreateTopicsRequest
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest
from tidelog.protocol.uuids import ZERO_UUID

VALUES = broker_values(num_partitions="4")


def topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    assignments: list[tuple[int, list[int]]] | None = None,
    **configs: Any,
) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments or ()
        ],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def create(cluster: Cluster, *topics: CreateTopicsRequest.CreatableTopic, validate_only: bool = False) -> Decision:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return create_topics(request, cluster.image, VALUES, Random(1))


def codes(decision: Decision) -> dict[str, ErrorCode]:
    """By name; a name that is answered twice fails."""
    results = decision.response.topics
    assert len({result.name for result in results}) == len(results)
    assert all((result.error_code == 0) == (not result.error_message) for result in results), "a sentence per refusal"
    return {result.name: ErrorCode(result.error_code) for result in results}


# creating


def test_a_new_topic_is_its_record_then_configs_then_partitions() -> None:
    cluster = Cluster()
    decision = create(cluster, topic("t", 2, retention_ms="5000", cleanup_policy="compact"))
    assert [type(record).__name__ for record in decision.records] == [
        "TopicRecord",
        "ConfigRecord",
        "ConfigRecord",
        "PartitionRecord",
        "PartitionRecord",
    ]
    (result,) = cluster.commit(decision).topics
    assert (result.num_partitions, result.replication_factor, result.error_message) == (2, 1, None)
    image = cluster.image
    assert image.topics["t"].topic_id == result.topic_id != ZERO_UUID
    assert dict(image.config(TOPIC_RESOURCE, "t")) == {"retention.ms": "5000", "cleanup.policy": "compact"}
    state = image.topics["t"].partitions[1]
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((1,), (1,), 1, 0)
    assert state.directories == (DIRECTORY_ID,)
    described = {config.name: (config.value, config.config_source) for config in result.configs}
    assert described["retention.ms"] == ("5000", 1)
    assert described["segment.bytes"] == ("1073741824", 5)


def test_minus_1_takes_the_brokers_defaults() -> None:
    cluster = Cluster()
    (result,) = cluster.commit(create(cluster, topic("t", -1, -1))).topics
    assert (result.num_partitions, result.replication_factor) == (4, 1)


def test_replicas_go_round_the_live_brokers() -> None:
    cluster = Cluster(brokers=3)
    cluster.apply(r.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, fenced=1))
    cluster.commit(create(cluster, topic("t", 4, 2)))
    placed = [state.replicas for _, state in sorted(cluster.image.topics["t"].partitions.items())]
    assert placed == [(1, 3), (3, 1), (1, 3), (3, 1)]


def test_a_manual_assignment_is_followed() -> None:
    cluster = Cluster(brokers=2)
    (result,) = cluster.commit(create(cluster, topic("t", -1, -1, [(1, [1, 2]), (0, [2, 1])]))).topics
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    partitions = cluster.image.topics["t"].partitions
    assert (partitions[0].replicas, partitions[0].leader, partitions[1].leader) == ((2, 1), 2, 1)


def test_validation_only_answers_the_same_and_writes_nothing() -> None:
    decision = create(Cluster(), topic("t", 2), topic("bad name"), validate_only=True)
    assert codes(decision) == {"t": ErrorCode.NONE, "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert decision.response.topics[0].num_partitions == 2
    assert decision.records == []


def test_one_that_is_refused_does_not_hinder_the_others() -> None:
    cluster = Cluster()
    decision = create(cluster, topic("good"), topic("bad", 0), topic("fine"))
    assert codes(decision) == {"good": 0, "bad": ErrorCode.INVALID_PARTITIONS, "fine": 0}
    cluster.commit(decision)
    assert sorted(cluster.image.topics) == ["fine", "good"]


def test_ids_come_from_the_random_source() -> None:
    ids = [create(Cluster(), topic("t")).response.topics[0].topic_id for _ in range(2)]
    assert ids[0] == ids[1]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        pytest.param(topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS, id="exists"),
        pytest.param(topic("dotted_name"), ErrorCode.INVALID_TOPIC_EXCEPTION, id="collides"),
        pytest.param(topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, id="no name"),
        pytest.param(topic("a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, id="long name"),
        pytest.param(topic("t", 0), ErrorCode.INVALID_PARTITIONS, id="no partitions"),
        pytest.param(topic("t", -2), ErrorCode.INVALID_PARTITIONS, id="-2 partitions"),
        pytest.param(topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, id="no replicas"),
        pytest.param(topic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR, id="-2 replicas"),
        pytest.param(topic("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR, id="more replicas than brokers"),
        pytest.param(topic("t", 10_001), ErrorCode.POLICY_VIOLATION, id="too many partitions"),
        pytest.param(topic("t", 1, -1, [(0, [1])]), ErrorCode.INVALID_REQUEST, id="assignment and count"),
        pytest.param(topic("t", -1, 1, [(0, [1])]), ErrorCode.INVALID_REQUEST, id="assignment and factor"),
        pytest.param(topic("t", -1, -1, [(0, [1]), (2, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="gap"),
        pytest.param(topic("t", -1, -1, [(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="twice"),
        pytest.param(topic("t", -1, -1, [(-1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="partition -1"),
        pytest.param(topic("t", -1, -1, [(0, [7])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="unknown broker"),
        pytest.param(topic("t", -1, -1, [(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="broker twice"),
        pytest.param(topic("t", -1, -1, [(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="empty assignment"),
        pytest.param(
            topic("t", -1, -1, [(0, [1]), (1, [1, 2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="uneven assignment"
        ),
        pytest.param(topic("t", retention_ms="soon"), ErrorCode.INVALID_CONFIG, id="bad config"),
        pytest.param(topic("t", no_such_thing="1"), ErrorCode.INVALID_CONFIG, id="unknown config"),
        pytest.param(topic("t", retention_ms=None), ErrorCode.INVALID_CONFIG, id="null config"),
    ],
)
def test_refusals(wanted: CreateTopicsRequest.CreatableTopic, code: ErrorCode) -> None:
    cluster = Cluster(brokers=2)
    cluster.commit(create(cluster, topic("there"), topic("dotted.name")))
    decision = create(cluster, wanted)
    assert codes(decision) == {wanted.name: code}
    assert decision.records == []


def test_a_name_given_twice_is_answered_once() -> None:
    decision = create(Cluster(), topic("t"), topic("u"), topic("t", 3))
    assert codes(decision) == {"t": ErrorCode.INVALID_REQUEST, "u": ErrorCode.NONE}


def test_names_that_collide_with_each_other() -> None:
    decision = create(Cluster(), topic("a.b"), topic("a_b"))
    assert codes(decision) == {"a.b": ErrorCode.NONE, "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_partitions_of_one_request_are_counted_together_and_defaults_too() -> None:
    half = PARTITIONS_PER_REQUEST_MAX // 2
    assert set(codes(create(Cluster(), topic("a", half), topic("b", half), validate_only=True)).values()) == {0}
    over = create(Cluster(), topic("a", half), topic("b", half + 1))
    assert set(codes(over).values()) == {ErrorCode.POLICY_VIOLATION}
    by_default = [topic(f"t{number}", -1, -1) for number in range(PARTITIONS_PER_REQUEST_MAX // 4 + 1)]
    assert set(codes(create(Cluster(), *by_default)).values()) == {ErrorCode.POLICY_VIOLATION}


# deleting


def delete(cluster: Cluster, *named: str) -> Decision:
    return delete_topics(DeleteTopicsRequest(topic_names=list(named)), cluster.image, by_names=True)


def delete_states(cluster: Cluster, *states: tuple[str | None, bytes]) -> Decision:
    topics = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]
    return delete_topics(DeleteTopicsRequest(topics=topics), cluster.image, by_names=False)


def answers(decision: Decision) -> list[tuple[str | None, ErrorCode]]:
    assert all((a.error_code == 0) == (not a.error_message) for a in decision.response.responses)
    return [(answer.name, ErrorCode(answer.error_code)) for answer in decision.response.responses]


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.commit(create(cluster, topic("a", 2, retention_ms="1"), topic("b")))
    return cluster


def test_a_topic_goes_with_its_partitions_and_configs(cluster: Cluster) -> None:
    decision = delete(cluster, "a")
    assert answers(decision) == [("a", ErrorCode.NONE)]
    cluster.commit(decision)
    assert list(cluster.image.topics) == ["b"]
    assert not cluster.image.configs


def test_deleting_by_id(cluster: Cluster) -> None:
    topic_id = cluster.image.topics["a"].topic_id
    decision = delete_states(cluster, (None, topic_id), ("b", ZERO_UUID))
    assert answers(decision) == [("a", ErrorCode.NONE), ("b", ErrorCode.NONE)]
    assert decision.response.responses[0].topic_id == topic_id
    cluster.commit(decision)
    assert not cluster.image.topics and not cluster.image.topic_names


def test_unknown_topics(cluster: Cluster) -> None:
    assert answers(delete(cluster, "x")) == [("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert answers(delete_states(cluster, (None, b"1" * 16))) == [(None, ErrorCode.UNKNOWN_TOPIC_ID)]


def test_a_topic_given_twice_is_refused_once_and_stays(cluster: Cluster) -> None:
    decision = delete(cluster, "a", "b", "a")
    assert sorted(answers(decision), key=str) == [("a", ErrorCode.INVALID_REQUEST), ("b", ErrorCode.NONE)]
    cluster.commit(decision)
    assert list(cluster.image.topics) == ["a"]
    topic_id = cluster.image.topics["a"].topic_id
    assert answers(delete_states(cluster, (None, topic_id), (None, topic_id))) == [(None, ErrorCode.INVALID_REQUEST)]


def test_by_its_name_and_by_its_id_is_twice_as_well(cluster: Cluster) -> None:
    decision = delete_states(cluster, ("a", ZERO_UUID), (None, cluster.image.topics["a"].topic_id))
    assert {code for _, code in answers(decision)} == {ErrorCode.INVALID_REQUEST}
    assert decision.records == []


def test_a_name_and_an_id_at_once_or_neither_is_refused(cluster: Cluster) -> None:
    topic_id = cluster.image.topics["a"].topic_id
    assert answers(delete_states(cluster, ("a", topic_id))) == [("a", ErrorCode.INVALID_REQUEST)]
    assert answers(delete_states(cluster, (None, ZERO_UUID))) == [(None, ErrorCode.INVALID_REQUEST)]
