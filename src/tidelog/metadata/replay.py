"""Records of the metadata log become a new image and the delta between the two. The only place that changes
metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from tidelog.kernel.errors import TidelogError
from tidelog.metadata.carried import carry
from tidelog.metadata.image import (
    TOPIC_RESOURCE,
    BrokerImage,
    ControllerImage,
    Endpoint,
    MetadataDelta,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from tidelog.protocol.messages import records_metadata as r

_NO_CHANGE: Final = -2
_ENDS: Final = (r.EndTransactionRecord, r.AbortTransactionRecord)


class Replay:
    """Collects the records of one batch over an image. Maps are copied at their first change only."""

    def __init__(self, image: MetadataImage) -> None:
        self._before = image
        self._maps: dict[str, dict[Any, Any]] = {}
        self._next_producer_id = image.next_producer_id
        self._partitions: dict[bytes, dict[int, PartitionState]] = {}  # of touched topics; shared with their images
        self._touched: set[str] = set()
        self._deleted: list[TopicImage] = []
        self._configs: set[tuple[int, str]] = set()
        self._held: list[tuple[Any, int]] | None = None if image.held is None else list(image.held)

    def apply(self, record: Any, offset: int) -> None:
        if self._held is not None and type(record) not in _ENDS:
            self._held.append((record, offset))
            return
        handler = _HANDLERS[type(record)]
        try:
            handler(self, record, offset)
        except KeyError as error:
            raise TidelogError(
                f"the metadata log is damaged: its {type(record).__name__} at offset {offset} speaks of {error}, "
                "which no earlier record has made"
            ) from None

    def finish(self, offset: int, epoch: int) -> tuple[MetadataImage, MetadataDelta]:
        fields: dict[str, Any] = {name: MappingProxyType(content) for name, content in self._maps.items()}
        after = replace(
            self._before,
            offset=offset,
            epoch=epoch,
            next_producer_id=self._next_producer_id,
            held=None if self._held is None else tuple(self._held),
            **fields,
        )
        created, changed = [], []
        for name in sorted(self._touched):
            topic = after.topics.get(name)
            old = self._before.topics.get(name)
            if topic is None:
                continue
            if old is not None and old.topic_id == topic.topic_id:
                changed.append(topic)
            else:
                created.append(topic)
        delta = MetadataDelta(
            before=self._before,
            after=after,
            created=tuple(created),
            deleted=tuple(self._deleted),
            changed=tuple(changed),
            configs=frozenset(self._configs),
            brokers_changed="brokers" in self._maps,
            features_changed="features" in self._maps,
        )
        return after, delta

    # metadata transactions (KIP-868): what they bracket counts when they end, or never

    def _begin(self, record: r.BeginTransactionRecord, offset: int) -> None:
        self._held = []

    def _end(self, record: r.EndTransactionRecord, offset: int) -> None:
        held, self._held = self._held or [], None
        for earlier, its_offset in held:
            self.apply(earlier, its_offset)

    def _abort(self, record: r.AbortTransactionRecord, offset: int) -> None:
        self._held = None

    # maps, copied at the first write

    def _read(self, name: str) -> Mapping[Any, Any]:
        found: Mapping[Any, Any] | None = self._maps.get(name)
        return getattr(self._before, name) if found is None else found

    def _write(self, name: str) -> dict[Any, Any]:
        found = self._maps.get(name)
        if found is None:
            found = self._maps[name] = dict(getattr(self._before, name))
        return found

    # topics

    def _topic(self, record: r.TopicRecord, offset: int) -> None:
        self._write("topics")[record.name] = TopicImage(record.name, record.topic_id)
        self._write("topic_names")[record.topic_id] = record.name
        self._touched.add(record.name)

    def _remove_topic(self, record: r.RemoveTopicRecord, offset: int) -> None:
        name = self._write("topic_names").pop(record.topic_id)
        topic = self._write("topics").pop(name)
        if self._before.topic_names.get(record.topic_id) is not None:
            self._deleted.append(self._before.topics[name])
        else:
            self._deleted.append(topic)
        if (TOPIC_RESOURCE, name) in self._read("configs"):
            del self._write("configs")[TOPIC_RESOURCE, name]

    def _set_partition(self, topic_id: bytes, index: int, state: PartitionState) -> None:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            name = self._read("topic_names")[topic_id]
            topics = self._write("topics")
            partitions = self._partitions[topic_id] = dict(topics[name].partitions)
            topics[name] = TopicImage(name, topic_id, partitions)
            self._touched.add(name)
        partitions[index] = state

    def _partition(self, record: r.PartitionRecord, offset: int) -> None:
        state = PartitionState(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=tuple(record.directories),
            removing=tuple(record.removing_replicas),
            adding=tuple(record.adding_replicas),
            eligible_leaders=tuple(record.eligible_leader_replicas or ()),
            last_known_leaders=tuple(record.last_known_elr or ()),
            leader_recovery_state=record.leader_recovery_state,
        )
        self._set_partition(record.topic_id, record.partition_id, state)

    def _partition_change(self, record: r.PartitionChangeRecord, offset: int) -> None:
        name = self._read("topic_names")[record.topic_id]
        old: PartitionState = self._read("topics")[name].partitions[record.partition_id]
        new = replace(old, partition_epoch=old.partition_epoch + 1)
        if record.leader != _NO_CHANGE:
            new = replace(new, leader=record.leader, leader_epoch=old.leader_epoch + 1)
        if record.leader_recovery_state != -1:
            new = replace(new, leader_recovery_state=record.leader_recovery_state)
        given: dict[str, list[Any] | None] = {
            "isr": record.isr,
            "replicas": record.replicas,
            "removing": record.removing_replicas,
            "adding": record.adding_replicas,
            "eligible_leaders": record.eligible_leader_replicas,
            "last_known_leaders": record.last_known_elr,
            "directories": record.directories,
        }
        changes: dict[str, Any] = {name: tuple(value) for name, value in given.items() if value is not None}
        if changes:
            new = replace(new, **changes)
        self._set_partition(record.topic_id, record.partition_id, new)

    def _clear_elr(self, record: r.ClearElrRecord, offset: int) -> None:
        topics = self._read("topics")
        for name in [record.topic_name] if record.topic_name else sorted(topics):
            topic: TopicImage | None = topics.get(name)
            if topic is None:
                continue
            for index, state in sorted(topic.partitions.items()):
                if state.eligible_leaders or state.last_known_leaders:
                    cleared = replace(state, eligible_leaders=(), last_known_leaders=())
                    self._set_partition(topic.topic_id, index, cleared)

    # configs, features, producer ids

    def _config(self, record: r.ConfigRecord, offset: int) -> None:
        resource = (record.resource_type, record.resource_name)
        configs = self._write("configs")
        values = dict(configs.get(resource, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            configs[resource] = MappingProxyType(values)
        else:
            configs.pop(resource, None)
        self._configs.add(resource)

    def _feature_level(self, record: r.FeatureLevelRecord, offset: int) -> None:
        features = self._write("features")
        if record.feature_level == 0:
            features.pop(record.name, None)
        else:
            features[record.name] = record.feature_level

    def _producer_ids(self, record: r.ProducerIdsRecord, offset: int) -> None:
        self._next_producer_id = record.next_producer_id

    # brokers and controllers

    def _register_broker(self, record: r.RegisterBrokerRecord, offset: int) -> None:
        self._write("brokers")[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            features=tuple((f.name, f.min_supported_version, f.max_supported_version) for f in record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs),
        )

    def _unregister_broker(self, record: r.UnregisterBrokerRecord, offset: int) -> None:
        self._write("brokers").pop(record.broker_id, None)

    def _broker_change(self, record: r.BrokerRegistrationChangeRecord, offset: int) -> None:
        brokers = self._write("brokers")
        broker: BrokerImage = brokers[record.broker_id]
        if record.fenced:
            broker = replace(broker, fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = replace(broker, in_controlled_shutdown=record.in_controlled_shutdown > 0)
        if record.log_dirs:
            broker = replace(broker, log_dirs=tuple(record.log_dirs))
        brokers[record.broker_id] = broker

    def _register_controller(self, record: r.RegisterControllerRecord, offset: int) -> None:
        self._write("controllers")[record.controller_id] = ControllerImage(
            controller_id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            features=tuple((f.name, f.min_supported_version, f.max_supported_version) for f in record.features),
        )

    def _fence_broker(self, record: r.FenceBrokerRecord, offset: int) -> None:
        self._write("brokers")[record.id] = replace(self._read("brokers")[record.id], fenced=True)

    def _unfence_broker(self, record: r.UnfenceBrokerRecord, offset: int) -> None:
        self._write("brokers")[record.id] = replace(self._read("brokers")[record.id], fenced=False)

    # the rest

    def _carry(self, record: Any, offset: int) -> None:
        carry(self._write("carried"), record)

    def _nothing(self, record: Any, offset: int) -> None:
        pass


_HANDLERS: Final[Mapping[type, Callable[[Replay, Any, int], None]]] = {
    r.TopicRecord: Replay._topic,
    r.RemoveTopicRecord: Replay._remove_topic,
    r.PartitionRecord: Replay._partition,
    r.PartitionChangeRecord: Replay._partition_change,
    r.ClearElrRecord: Replay._clear_elr,
    r.ConfigRecord: Replay._config,
    r.FeatureLevelRecord: Replay._feature_level,
    r.ProducerIdsRecord: Replay._producer_ids,
    r.RegisterBrokerRecord: Replay._register_broker,
    r.UnregisterBrokerRecord: Replay._unregister_broker,
    r.BrokerRegistrationChangeRecord: Replay._broker_change,
    r.RegisterControllerRecord: Replay._register_controller,
    r.NoOpRecord: Replay._nothing,
    r.BeginTransactionRecord: Replay._begin,
    r.EndTransactionRecord: Replay._end,
    r.AbortTransactionRecord: Replay._abort,
    # Of releases before 3.3, and of the move away from ZooKeeper, which was over before 4.0.
    r.FenceBrokerRecord: Replay._fence_broker,
    r.UnfenceBrokerRecord: Replay._unfence_broker,
    r.ZkMigrationStateRecord: Replay._nothing,
    r.ClientQuotaRecord: Replay._carry,
    r.AccessControlEntryRecord: Replay._carry,
    r.RemoveAccessControlEntryRecord: Replay._carry,
    r.UserScramCredentialRecord: Replay._carry,
    r.RemoveUserScramCredentialRecord: Replay._carry,
    r.DelegationTokenRecord: Replay._carry,
    r.RemoveDelegationTokenRecord: Replay._carry,
}
