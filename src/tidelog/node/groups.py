"""Drives the group coordinator: its shards follow the partitions of `__consumer_offsets`, its time follows the loop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final, NamedTuple

from tidelog.broker.deadlines import Deadlines
from tidelog.coordinator.group.assignors import ASSIGNORS
from tidelog.coordinator.group.config import GroupConfig
from tidelog.coordinator.group.coordinator import GroupCoordinator
from tidelog.kernel.ports import Clock
from tidelog.log.transactions import Marker
from tidelog.metadata.image import MetadataDelta
from tidelog.metadata.live_config import LiveConfig
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.node.driving import Driver
from tidelog.node.group_configs import GroupConfigs
from tidelog.node.internal_topic import InternalTopic
from tidelog.replication.partition import Partition
from tidelog.replication.partitions import Partitions
from tidelog.replication.shard_log import PartitionShardLog

OFFSETS_TOPIC: Final = "__consumer_offsets"


class GroupView(NamedTuple):
    group_id: str
    members: int
    offsets: list[tuple[str, int, int]]


class _Topics:
    """The coordinator's questions about topics, asked of the newest image."""

    def __init__(self, publisher: MetadataPublisher) -> None:
        self._publisher = publisher

    def topic_id(self, name: str) -> bytes | None:
        topic = self._publisher.image.topics.get(name)
        return None if topic is None else topic.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._publisher.image.topic_names.get(topic_id)

    def has_partition(self, name: str, partition: int) -> bool:
        return self._publisher.image.partition(name, partition) is not None

    def partition_count(self, name: str) -> int:
        topic = self._publisher.image.topics.get(name)
        return 0 if topic is None else len(topic.partitions)

    def names(self) -> Iterable[str]:
        return self._publisher.image.topics.keys()

    def version(self) -> int:
        return self._publisher.image.offset


class Groups:
    def __init__(
        self,
        partitions: Partitions,
        publisher: MetadataPublisher,
        config: LiveConfig,
        clock: Clock,
        random: Random,
        deadlines: Deadlines,
    ) -> None:
        self._clock = clock
        self._driver = Driver(clock, deadlines)
        self._topic = InternalTopic(OFFSETS_TOPIC, partitions, publisher, self)
        self._configs = GroupConfigs(publisher, config)
        self.coordinator = GroupCoordinator(
            _group_config(config), _Topics(publisher), clock, random, self._driver.wake, self._configs
        )

    # following the metadata

    def start(self) -> None:
        self._driver.start(self.coordinator.runtime)
        self.load()

    def stop(self) -> None:
        self._driver.stop()

    def on_delta(self, delta: MetadataDelta) -> None:
        self._configs.on_delta(delta)
        if not self._driver.is_running:
            return
        self._topic.on_delta(delta)
        if delta.deleted:
            self.coordinator.topics_deleted((topic.name, topic.topic_id) for topic in delta.deleted)
        changed = {topic.name for topic in (*delta.created, *delta.deleted, *delta.changed)}
        if changed:
            self.coordinator.topics_changed(changed, came_or_went=bool(delta.created or delta.deleted))

    def load(self) -> None:
        self._topic.load()

    def set_shard_count(self, count: int) -> None:
        self.coordinator.config = replace(self.coordinator.config, offsets_topic_num_partitions=count)

    def load_shard(self, index: int, epoch: int, partition: Partition) -> None:
        partition.when_marked = partial(self._end_transaction, index)
        self.coordinator.runtime.load(index, epoch, PartitionShardLog(partition, self._clock))

    def unload_shard(self, index: int, epoch: int) -> None:
        self.coordinator.runtime.unload(index, epoch)

    def _end_transaction(self, index: int, marker: Marker) -> None:
        self.coordinator.end_transaction(index, marker.producer_id, marker.committed)

    # looking

    def views(self) -> list[GroupView]:
        """Groups with their members and committed offsets, for the metrics."""
        found = []
        for shard in self.coordinator.runtime.shards():
            machine = shard.machine
            names = {group.group_id for group in machine.all_groups()}
            for group_id in sorted(names | set(machine.offsets.group_ids())):
                group = machine.group(group_id)
                offsets = [(topic, index, value.offset) for topic, index, value in machine.offsets.of_group(group_id)]
                found.append(GroupView(group_id, 0 if group is None else len(group.members), offsets))
        return found


def _group_config(config: LiveConfig) -> GroupConfig:
    return GroupConfig(
        group_min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
        group_initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
        group_max_size=config.integer("group.max.size"),
        offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
        offsets_retention_minutes=config.integer("offsets.retention.minutes"),
        offsets_retention_check_interval_ms=config.integer("offsets.retention.check.interval.ms"),
        offsets_commit_timeout_ms=config.integer("offsets.commit.timeout.ms"),
        offsets_topic_num_partitions=config.integer("offsets.topic.num.partitions"),
        group_consumer_max_size=config.integer("group.consumer.max.size"),
        group_consumer_assignors=_assignors(config),
        group_consumer_migration_policy=str(config.values["group.consumer.migration.policy"]).lower(),
    )


def _assignors(config: LiveConfig) -> tuple[str, ...]:
    """Those that are here, in the order in which they were named; classes of Java are not."""
    names = config.values["group.consumer.assignors"]
    found = tuple(name for name in names if name in ASSIGNORS) if isinstance(names, (list, tuple)) else ()
    return found or tuple(ASSIGNORS)
