"""Random histories of valid metadata records, batch by batch, for hypothesis."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tidelog.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from tidelog.protocol.messages import records_metadata as r

NAMES = ("a", "b", "c.d", "__consumer_offsets")
uuids = st.binary(min_size=16, max_size=16).filter(lambda value: value != bytes(16))
ids = st.lists(st.integers(0, 4), max_size=3, unique=True)
endpoints = st.lists(
    st.tuples(st.sampled_from(("PLAINTEXT", "SSL")), st.text(max_size=9), st.integers(0, 65535), st.integers(0, 3)),
    max_size=2,
)
features = st.lists(st.tuples(st.sampled_from(("metadata.version", "kraft.version")), st.integers(0, 30)), max_size=2)


@dataclass
class World:
    """What exists while a history is being written: records must only speak of that."""

    topics: dict[str, bytes] = field(default_factory=dict)
    partitions: dict[bytes, set[int]] = field(default_factory=dict)
    brokers: set[int] = field(default_factory=set)
    used: set[bytes] = field(default_factory=set)


def partition_record(draw: Any, topic_id: bytes, index: int) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=draw(ids),
        isr=draw(ids),
        removing_replicas=draw(ids),
        adding_replicas=draw(ids),
        leader=draw(st.integers(-1, 4)),
        leader_epoch=draw(st.integers(0, 99)),
        partition_epoch=draw(st.integers(0, 99)),
        directories=draw(st.lists(uuids, max_size=2)),
        leader_recovery_state=draw(st.sampled_from((0, 1))),
        eligible_leader_replicas=draw(st.none() | ids),
        last_known_elr=draw(st.none() | ids),
    )


def _new_topic(draw: Any, world: World) -> list[Any]:
    name, topic_id = draw(st.sampled_from(NAMES)), draw(uuids)
    if name in world.topics or topic_id in world.used:
        return []
    world.topics[name] = topic_id
    world.used.add(topic_id)
    world.partitions[topic_id] = set(range(draw(st.integers(0, 3))))
    made = [partition_record(draw, topic_id, index) for index in sorted(world.partitions[topic_id])]
    return [r.TopicRecord(name=name, topic_id=topic_id), *made]


def _remove_topic(draw: Any, world: World) -> list[Any]:
    if not world.topics:
        return []
    topic_id = world.topics.pop(draw(st.sampled_from(sorted(world.topics))))
    del world.partitions[topic_id]
    return [r.RemoveTopicRecord(topic_id=topic_id)]


def _partition(draw: Any, world: World) -> list[Any]:
    if not world.topics:
        return []
    topic_id = world.topics[draw(st.sampled_from(sorted(world.topics)))]
    index = draw(st.integers(0, 5))
    world.partitions[topic_id].add(index)
    return [partition_record(draw, topic_id, index)]


def _partition_change(draw: Any, world: World) -> list[Any]:
    known = [(topic_id, index) for topic_id, indexes in sorted(world.partitions.items()) for index in sorted(indexes)]
    if not known:
        return []
    topic_id, index = draw(st.sampled_from(known))
    change = r.PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        leader=draw(st.integers(-2, 4)),
        isr=draw(st.none() | ids),
        replicas=draw(st.none() | ids),
        removing_replicas=draw(st.none() | ids),
        adding_replicas=draw(st.none() | ids),
        leader_recovery_state=draw(st.sampled_from((-1, 0, 1))),
        eligible_leader_replicas=draw(st.none() | ids),
        last_known_elr=draw(st.none() | ids),
        directories=draw(st.none() | st.lists(uuids, max_size=2)),
    )
    return [change]


def _clear_elr(draw: Any, world: World) -> list[Any]:
    return [r.ClearElrRecord(topic_name=draw(st.sampled_from(("", *NAMES))))]


def _config(draw: Any, world: World) -> list[Any]:
    kind, name = draw(
        st.sampled_from([(BROKER_RESOURCE, ""), (BROKER_RESOURCE, "1"), (GROUP_RESOURCE, "g")])
        | st.sampled_from([(TOPIC_RESOURCE, name) for name in sorted(world.topics)] or [(BROKER_RESOURCE, "")])
    )
    config = draw(st.sampled_from(("retention.ms", "flush.ms")))
    value = draw(st.none() | st.text(max_size=5))
    return [r.ConfigRecord(resource_type=kind, resource_name=name, name=config, value=value)]


def _feature(draw: Any, world: World) -> list[Any]:
    name = draw(st.sampled_from(("metadata.version", "group.version", "transaction.version")))
    return [r.FeatureLevelRecord(name=name, feature_level=draw(st.integers(0, 30)))]


def _producer_ids(draw: Any, world: World) -> list[Any]:
    return [r.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=draw(st.integers(1, 2**40)))]


def _broker(draw: Any, world: World) -> list[Any]:
    shape, broker_id = r.RegisterBrokerRecord, draw(st.integers(0, 3))
    world.brokers.add(broker_id)
    record = shape(
        broker_id=broker_id,
        incarnation_id=draw(uuids),
        broker_epoch=draw(st.integers(0, 2**40)),
        end_points=[
            shape.BrokerEndpoint(name=n, host=h, port=p, security_protocol=s) for n, h, p, s in draw(endpoints)
        ],
        features=[
            shape.BrokerFeature(name=name, min_supported_version=0, max_supported_version=level)
            for name, level in draw(features)
        ],
        rack=draw(st.none() | st.text(max_size=4)),
        fenced=draw(st.booleans()),
        in_controlled_shutdown=draw(st.booleans()),
        log_dirs=draw(st.lists(uuids, max_size=2)),
    )
    return [record]


def _broker_change(draw: Any, world: World) -> list[Any]:
    if not world.brokers:
        return []
    change = r.BrokerRegistrationChangeRecord(
        broker_id=draw(st.sampled_from(sorted(world.brokers))),
        broker_epoch=1,
        fenced=draw(st.sampled_from((-1, 0, 1))),
        in_controlled_shutdown=draw(st.sampled_from((0, 1))),
        log_dirs=draw(st.lists(uuids, max_size=2)),
    )
    return [change]


def _unregister(draw: Any, world: World) -> list[Any]:
    broker_id = draw(st.integers(0, 3))
    world.brokers.discard(broker_id)
    return [r.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=1)]


def _controller(draw: Any, world: World) -> list[Any]:
    shape = r.RegisterControllerRecord
    record = shape(
        controller_id=draw(st.integers(0, 2)),
        incarnation_id=draw(uuids),
        end_points=[
            shape.ControllerEndpoint(name=n, host=h, port=p, security_protocol=s) for n, h, p, s in draw(endpoints)
        ],
        features=[
            shape.ControllerFeature(name=name, min_supported_version=0, max_supported_version=level)
            for name, level in draw(features)
        ],
    )
    return [record]


def _nothing(draw: Any, world: World) -> list[Any]:
    return draw(st.sampled_from(([r.NoOpRecord()], [r.BeginTransactionRecord(name="x"), r.EndTransactionRecord()])))


def _carried(draw: Any, world: World) -> list[Any]:
    name, number = draw(st.sampled_from(("a", "b"))), draw(st.integers(1, 2))
    part = r.ClientQuotaRecord.EntityData
    entity = [part(entity_type="user", entity_name=draw(st.none() | st.just(name)))]
    return [
        draw(
            st.sampled_from(
                (
                    r.AccessControlEntryRecord(id=name.encode() * 16, principal=str(number)),
                    r.RemoveAccessControlEntryRecord(id=name.encode() * 16),
                    r.UserScramCredentialRecord(name=name, mechanism=number, salt=b"salt"),
                    r.RemoveUserScramCredentialRecord(name=name, mechanism=number),
                    r.DelegationTokenRecord(token_id=name, expiration_timestamp=number),
                    r.RemoveDelegationTokenRecord(token_id=name),
                    r.ClientQuotaRecord(entity=entity, key="k", value=number / 3),
                    r.ClientQuotaRecord(entity=entity, key="k", remove=True),
                )
            )
        )
    ]


_STEPS = (
    _new_topic,
    _new_topic,
    _remove_topic,
    _partition,
    _partition_change,
    _partition_change,
    _clear_elr,
    _config,
    _feature,
    _producer_ids,
    _broker,
    _broker_change,
    _unregister,
    _controller,
    _nothing,
    _carried,
    _carried,
)


@st.composite
def histories(draw: Any) -> list[list[Any]]:
    """Batches of records, none of them empty."""
    world = World()
    batches: list[list[Any]] = []
    for _ in range(draw(st.integers(1, 6))):
        batch: list[Any] = []
        for step in draw(st.lists(st.sampled_from(_STEPS), min_size=1, max_size=5)):
            batch += step(draw, world)
        if batch:
            batches.append(batch)
    return batches
