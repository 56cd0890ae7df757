from __future__ import annotations

from tidelog.coordinator.group.consumer_config import ConsumerGroupConfig
from tidelog.metadata.config import BrokerValues
from tidelog.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE
from tidelog.metadata.live_config import LiveConfig
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.node.group_configs import GroupConfigs
from tidelog.protocol.messages.records_metadata import ConfigRecord


class World:
    def __init__(self, **static: str) -> None:
        self.publisher = MetadataPublisher()
        self.live = LiveConfig(BrokerValues({name.replace("_", "."): text for name, text in static.items()}), 1)
        self.configs = GroupConfigs(self.publisher, self.live)
        self.publisher.subscribe(self.live.on_delta)
        self.publisher.subscribe(self.configs.on_delta)

    def set(self, kind: int, resource: str, name: str, value: str | None) -> None:
        record = ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
        self.publisher.apply([record], self.publisher.image.offset + 1, 1)


def test_without_own_configs_a_group_has_those_of_the_broker() -> None:
    world = World(group_consumer_session_timeout_ms="50000")
    assert world.configs("g") == ConsumerGroupConfig(50_000, 5_000, 1_000)
    assert World().configs("g") == ConsumerGroupConfig()


def test_what_is_set_and_unset_counts_at_once_and_for_that_group_only() -> None:
    world = World()
    world.set(GROUP_RESOURCE, "g", "consumer.session.timeout.ms", "60000")
    assert world.configs("g").session_timeout_ms == 60_000
    assert world.configs("h").session_timeout_ms == 45_000
    world.set(GROUP_RESOURCE, "g", "consumer.heartbeat.interval.ms", "6000")
    assert world.configs("g") == ConsumerGroupConfig(60_000, 6_000, 1_000)
    world.set(GROUP_RESOURCE, "g", "consumer.session.timeout.ms", None)
    assert world.configs("g") == ConsumerGroupConfig(45_000, 6_000, 1_000)


def test_a_change_of_the_brokers_default_reaches_the_groups_that_have_none_of_their_own() -> None:
    world = World()
    assert world.configs("g").assignment_interval_ms == 1_000
    world.set(GROUP_RESOURCE, "own", "consumer.assignment.interval.ms", "7")
    world.set(BROKER_RESOURCE, "", "group.consumer.assignment.interval.ms", "200")
    assert world.configs("g").assignment_interval_ms == 200
    assert world.configs("own").assignment_interval_ms == 7


def test_what_was_stored_under_other_bounds_is_brought_within_those_of_today() -> None:
    world = World(group_consumer_max_session_timeout_ms="50000", group_consumer_min_heartbeat_interval_ms="1000")
    world.set(GROUP_RESOURCE, "g", "consumer.session.timeout.ms", "60000")
    world.set(GROUP_RESOURCE, "g", "consumer.heartbeat.interval.ms", "10")
    assert world.configs("g") == ConsumerGroupConfig(50_000, 1_000, 1_000)
