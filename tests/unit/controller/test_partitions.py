"""Adding partitions, and leaders at a node's start. The codes were compared with a running Apache Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.controller.images import DIRECTORY_ID, Cluster
from tests.unit.controller.test_topics import create, topic
from tidelog.controller.brokers import SUPPORTED_FEATURES, bootstrap, register, unfence
from tidelog.controller.decision import Decision, encode_record
from tidelog.controller.partitions import create_partitions
from tidelog.controller.producer_ids import BLOCK, allocate_block
from tidelog.metadata.image import Endpoint
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import records_metadata as r
from tidelog.protocol.messages.create_partitions import CreatePartitionsRequest


def grow(cluster: Cluster, *wanted: tuple[str, int, list[list[int]] | None], validate_only: bool = False) -> Decision:
    shape = CreatePartitionsRequest
    topics = [
        shape.CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None if given is None else [shape.CreatePartitionsAssignment(broker_ids=ids) for ids in given],
        )
        for name, count, given in wanted
    ]
    return create_partitions(shape(topics=topics, validate_only=validate_only), cluster.image)


def codes(decision: Decision) -> dict[str, ErrorCode]:
    results = decision.response.results
    assert len({result.name for result in results}) == len(results)
    assert all((result.error_code == 0) == (not result.error_message) for result in results), "a sentence per refusal"
    return {result.name: ErrorCode(result.error_code) for result in results}


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(brokers=3)
    cluster.commit(create(cluster, topic("t", 2, 2)))
    return cluster


def test_partitions_are_added_behind_those_that_are_there(cluster: Cluster) -> None:
    before = dict(cluster.image.topics["t"].partitions)
    decision = grow(cluster, ("t", 5, None))
    assert codes(decision) == {"t": ErrorCode.NONE}
    cluster.commit(decision)
    after = cluster.image.topics["t"].partitions
    assert sorted(after) == [0, 1, 2, 3, 4]
    assert {index: after[index] for index in before} == before
    assert [len(after[index].replicas) for index in (2, 3, 4)] == [2, 2, 2]
    assert after[2].directories[0].startswith(b"directory-of-")


def test_a_manual_assignment_is_followed(cluster: Cluster) -> None:
    cluster.commit(grow(cluster, ("t", 4, [[3, 1], [2, 3]])))
    partitions = cluster.image.topics["t"].partitions
    assert (partitions[2].replicas, partitions[3].replicas, partitions[3].leader) == ((3, 1), (2, 3), 2)


def test_validation_only_writes_nothing(cluster: Cluster) -> None:
    decision = grow(cluster, ("t", 9, None), validate_only=True)
    assert (codes(decision), decision.records) == ({"t": ErrorCode.NONE}, [])


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        pytest.param(("x", 3, None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="unknown topic"),
        pytest.param(("t", 2, None), ErrorCode.INVALID_PARTITIONS, id="as many"),
        pytest.param(("t", 1, None), ErrorCode.INVALID_PARTITIONS, id="fewer"),
        pytest.param(("t", -1, None), ErrorCode.INVALID_PARTITIONS, id="negative"),
        pytest.param(("t", 2**31 - 1, None), ErrorCode.POLICY_VIOLATION, id="too many"),
        pytest.param(("t", 4, [[1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="too few assignments"),
        pytest.param(("t", 3, [[1, 2], [2, 3]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="too many assignments"),
        pytest.param(("t", 3, [[1, 9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="unknown broker"),
        pytest.param(("t", 3, [[1, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="broker twice"),
        pytest.param(("t", 3, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="another factor"),
        pytest.param(("t", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="nobody"),
    ],
)
def test_refusals(cluster: Cluster, wanted: Any, code: ErrorCode) -> None:
    decision = grow(cluster, wanted)
    assert (codes(decision), decision.records) == ({wanted[0]: code}, [])


def test_more_partitions_than_live_brokers_can_hold(cluster: Cluster) -> None:
    for broker_id in (1, 2):
        cluster.apply(r.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_id, fenced=1))
    assert codes(grow(cluster, ("t", 3, None))) == {"t": ErrorCode.INVALID_REPLICATION_FACTOR}


def test_a_name_given_twice_is_answered_once(cluster: Cluster) -> None:
    cluster.commit(create(cluster, topic("u", 1)))
    decision = grow(cluster, ("t", 3, None), ("u", 2, None), ("t", 4, None))
    assert codes(decision) == {"t": ErrorCode.INVALID_REQUEST, "u": ErrorCode.NONE}
    cluster.commit(decision)
    assert len(cluster.image.topics["t"].partitions) == 2


# a node's start


def test_a_new_cluster_finalises_its_features_once() -> None:
    cluster = Cluster()
    cluster.commit(bootstrap(cluster.image))
    assert dict(cluster.image.features) == {name: high for name, (_, high) in SUPPORTED_FEATURES.items()}
    assert bootstrap(cluster.image).records == []


def test_a_broker_registers_with_the_offset_of_its_own_record_as_its_epoch() -> None:
    """Controller and broker in one batch, the broker fenced until its partitions are led."""
    publisher = MetadataPublisher()
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9092)
    decision = register(70, 5, b"i" * 16, [endpoint], [DIRECTORY_ID], "rack-a")
    publisher.replay([encode_record(record) for record in decision.records], 70, 3)
    broker = publisher.image.brokers[5]
    assert (broker.epoch, broker.fenced, broker.rack, broker.log_dirs) == (71, True, "rack-a", (DIRECTORY_ID,))
    assert broker.endpoints == (endpoint,)
    assert publisher.image.controllers[5].incarnation_id == broker.incarnation_id == b"i" * 16
    assert publisher.image.live_brokers() == []
    decision = unfence(publisher.image, 5)
    publisher.replay([encode_record(record) for record in decision.records], 72, 3)
    assert [broker.broker_id for broker in publisher.image.live_brokers()] == [5]


def test_a_node_that_comes_back_leads_its_partitions_in_a_new_epoch() -> None:
    cluster = Cluster(brokers=2)
    cluster.commit(create(cluster, topic("mine", -1, -1, [(0, [1])]), topic("not-mine", -1, -1, [(0, [2])])))
    cluster.apply(
        r.PartitionChangeRecord(partition_id=0, topic_id=cluster.image.topics["mine"].topic_id, leader=-1, isr=[])
    )
    before = cluster.image.topics["mine"].partitions[0]
    other = cluster.image.topics["not-mine"].partitions[0]
    cluster.commit(unfence(cluster.image, 1))
    after = cluster.image.topics["mine"].partitions[0]
    assert (after.leader, after.isr) == (1, (1,))
    assert (after.leader_epoch, after.partition_epoch) == (before.leader_epoch + 1, before.partition_epoch + 1)
    assert cluster.image.topics["not-mine"].partitions[0] == other


def test_blocks_of_producer_ids_follow_each_other() -> None:
    cluster = Cluster()
    blocks = [cluster.commit(allocate_block(cluster.image, 1)) for _ in range(3)]
    assert blocks == [range(0, BLOCK), range(BLOCK, 2 * BLOCK), range(2 * BLOCK, 3 * BLOCK)]
    record = allocate_block(cluster.image, 1).records[0]
    assert (record.broker_id, record.broker_epoch) == (1, cluster.image.brokers[1].epoch)
