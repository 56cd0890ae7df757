"""An image as the records that make it again, in the order in which Apache Kafka writes its snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidelog.metadata.carried import ACL, QUOTA, SCRAM, TOKEN, carried_of
from tidelog.metadata.image import BrokerImage, ControllerImage, MetadataImage, PartitionState
from tidelog.protocol.messages import records_metadata as r


def image_records(image: MetadataImage) -> Iterator[Any]:
    for name, level in sorted(image.features.items(), key=lambda item: (item[0] != "metadata.version", item[0])):
        yield r.FeatureLevelRecord(name=name, feature_level=level)
    for _, broker in sorted(image.brokers.items()):
        yield broker_record(broker)
    for _, controller in sorted(image.controllers.items()):
        yield controller_record(controller)
    for name, topic in sorted(image.topics.items()):
        yield r.TopicRecord(name=name, topic_id=topic.topic_id)
        for index, state in sorted(topic.partitions.items()):
            yield partition_record(topic.topic_id, index, state)
    for (resource_type, resource_name), values in sorted(image.configs.items()):
        for name, value in sorted(values.items()):
            yield r.ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
    yield from carried_of(image.carried, QUOTA)
    if image.next_producer_id > 0:
        yield r.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    for kind in (ACL, SCRAM, TOKEN):
        yield from carried_of(image.carried, kind)


def partition_record(topic_id: bytes, index: int, state: PartitionState) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(state.replicas),
        isr=list(state.isr),
        removing_replicas=list(state.removing),
        adding_replicas=list(state.adding),
        leader=state.leader,
        leader_recovery_state=state.leader_recovery_state,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        directories=list(state.directories),
        eligible_leader_replicas=list(state.eligible_leaders) or None,
        last_known_elr=list(state.last_known_leaders) or None,
    )


def broker_record(broker: BrokerImage) -> r.RegisterBrokerRecord:
    shape = r.RegisterBrokerRecord
    return shape(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            shape.BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.endpoints
        ],
        features=[
            shape.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in broker.features
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
    )


def controller_record(controller: ControllerImage) -> r.RegisterControllerRecord:
    shape = r.RegisterControllerRecord
    return shape(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        end_points=[
            shape.ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in controller.endpoints
        ],
        features=[
            shape.ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in controller.features
        ],
    )
