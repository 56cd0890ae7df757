"""What a node writes about itself: features of a new cluster, its registration, its partitions, its farewell."""

from __future__ import annotations

from tests.unit.controller.images import DIRECTORY_ID, Cluster
from tidelog.controller import brokers
from tidelog.controller.decision import encode_record
from tidelog.metadata.image import PartitionState
from tidelog.protocol.messages import records_metadata as r
from tidelog.protocol.records_framing import decode_metadata_record

TOPIC_ID = b"t" * 16
LEVELS = {"group.version": 1, "metadata.version": 30, "transaction.version": 2}


def with_partition(**fields: object) -> Cluster:
    cluster = Cluster()
    partition = {
        "partition_id": 0,
        "replicas": [1],
        "isr": [1],
        "leader": 1,
        "leader_epoch": 4,
        "directories": [DIRECTORY_ID],
        **fields,
    }
    cluster.apply(r.TopicRecord(name="t", topic_id=TOPIC_ID), r.PartitionRecord(topic_id=TOPIC_ID, **partition))  # type: ignore[arg-type]
    return cluster


def partition_of(cluster: Cluster) -> PartitionState:
    state = cluster.image.partition("t", 0)
    assert state is not None
    return state


def test_features_are_finalised_once() -> None:
    cluster = Cluster()
    cluster.commit(brokers.bootstrap(cluster.image))
    assert cluster.image.features == LEVELS
    assert brokers.bootstrap(cluster.image).records == []


def test_a_directory_of_an_earlier_release_gets_the_features_that_have_come_since() -> None:
    cluster = Cluster()
    cluster.apply(r.FeatureLevelRecord(name="metadata.version", feature_level=30))
    cluster.commit(brokers.bootstrap(cluster.image))
    assert cluster.image.features == LEVELS


def test_features_that_somebody_has_chosen_are_left_alone() -> None:
    cluster = Cluster()
    chosen = {"metadata.version": 30, "group.version": 1}
    cluster.apply(*(r.FeatureLevelRecord(name=name, feature_level=level) for name, level in chosen.items()))
    assert brokers.bootstrap(cluster.image).records == []


def test_a_transaction_that_nobody_will_end_is_given_up_before_anything_else() -> None:
    cluster = Cluster()
    cluster.apply(r.BeginTransactionRecord(), r.FeatureLevelRecord(name="metadata.version", feature_level=29))
    cluster.commit(brokers.bootstrap(cluster.image))
    assert cluster.image.held is None
    assert cluster.image.features == LEVELS


def test_a_node_that_signs_off_is_fenced_and_leads_nothing() -> None:
    cluster = with_partition()
    cluster.commit(brokers.sign_off(cluster.image, 1))
    broker, state = cluster.image.brokers[1], partition_of(cluster)
    assert (broker.fenced, broker.in_controlled_shutdown) == (True, True)
    assert (state.leader, state.isr, state.leader_epoch) == (-1, (1,), 5)


def test_the_farewell_is_one_record_for_the_broker_and_one_for_each_partition_it_leads() -> None:
    cluster = with_partition()
    cluster.apply(r.PartitionRecord(partition_id=1, topic_id=TOPIC_ID, replicas=[2], isr=[2], leader=2))
    decoded = [decode_metadata_record(encode_record(one)) for one in brokers.sign_off(cluster.image, 1).records]
    assert decoded == [
        (r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1, in_controlled_shutdown=1), 1),
        (r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1), 2),
    ]


def test_a_node_that_comes_back_leads_again_in_a_new_epoch() -> None:
    cluster = with_partition()
    cluster.commit(brokers.sign_off(cluster.image, 1))
    cluster.commit(brokers.unfence(cluster.image, 1))
    broker, state = cluster.image.brokers[1], partition_of(cluster)
    assert not broker.fenced
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1,), 6)


def test_a_node_leads_what_apache_left_without_a_leader() -> None:
    """At a clean stop Apache Kafka empties the ISR into the eligible leaders (KIP-966); an unclean one asks for
    recovery."""
    cluster = with_partition(
        isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[1], leader_recovery_state=1
    )
    cluster.commit(brokers.unfence(cluster.image, 1))
    state = partition_of(cluster)
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1,), 5)
    assert (state.eligible_leaders, state.last_known_leaders, state.leader_recovery_state) == ((), (), 0)
