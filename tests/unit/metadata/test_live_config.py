"""The broker's configuration while it runs: what was set at run time lies over what it was started with."""

from __future__ import annotations

import pytest

from tidelog.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from tidelog.metadata.live_config import LiveConfig
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.node.config import load
from tidelog.protocol.messages import records_metadata as r

NAME = "log.retention.check.interval.ms"
DYNAMIC = "log.segment.bytes"


@pytest.fixture
def publisher() -> MetadataPublisher:
    return MetadataPublisher()


@pytest.fixture
def config(publisher: MetadataPublisher) -> LiveConfig:
    live = LiveConfig(load(None, {}, ["node.id=1", f"{DYNAMIC}=2000000"]).values, node_id=1)
    publisher.subscribe(live.on_delta)
    return live


def put(publisher: MetadataPublisher, name: str, value: str | None, kind: int = BROKER_RESOURCE) -> None:
    record = r.ConfigRecord(resource_type=kind, resource_name=name, name=DYNAMIC, value=value)
    publisher.apply([record], 0, 1)


def test_own_value_over_the_clusters_default_over_the_file(publisher: MetadataPublisher, config: LiveConfig) -> None:
    assert config.integer(DYNAMIC) == 2_000_000
    put(publisher, "", "3000000")
    assert config.integer(DYNAMIC) == 3_000_000
    put(publisher, "1", "4000000")
    assert config.integer(DYNAMIC) == 4_000_000
    put(publisher, "", "5000000")
    assert config.integer(DYNAMIC) == 4_000_000
    put(publisher, "1", None)
    assert config.integer(DYNAMIC) == 5_000_000
    put(publisher, "", None)
    assert config.integer(DYNAMIC) == 2_000_000


def test_another_brokers_value_is_none_of_ours(publisher: MetadataPublisher, config: LiveConfig) -> None:
    put(publisher, "2", "3000000")
    assert config.integer(DYNAMIC) == 2_000_000


def test_configs_of_topics_leave_the_values_alone(publisher: MetadataPublisher, config: LiveConfig) -> None:
    before = config.values
    put(publisher, "t", "3000000", kind=TOPIC_RESOURCE)
    assert config.values is before


def test_types(config: LiveConfig) -> None:
    assert config.boolean("auto.create.topics.enable") is True
    with pytest.raises(AssertionError, match="compression"):
        config.integer("compression.type")
