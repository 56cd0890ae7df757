"""Configs are read and changed, one by one and all at once."""

from __future__ import annotations

import pytest

from tests.clients.matrix import feature, section
from tests.clients.model import Client, Refused

pytestmark = section("Configs")

INVALID_CONFIG = 40
WEEK_MS = "604800000"


@feature("describe configs")
def test_describe_configs(client: Client, topic: str) -> None:
    config = client.topic_config(topic)
    assert (config["retention.ms"], config["cleanup.policy"]) == (WEEK_MS, "delete")
    broker = client.broker_config()
    assert broker["group.initial.rebalance.delay.ms"] == "0"
    assert broker["log.segment.bytes"] == "1073741824"


@feature("change topic configs one by one")
def test_incremental(client: Client, topic: str) -> None:
    client.set_topic_config(topic, {"retention.ms": "1000", "segment.ms": "2000"})
    client.set_topic_config(topic, {"retention.ms": "3000"})
    config = client.topic_config(topic)
    assert (config["retention.ms"], config["segment.ms"]) == ("3000", "2000")
    client.unset_topic_config(topic, "retention.ms")
    config = client.topic_config(topic)
    assert (config["retention.ms"], config["segment.ms"]) == (WEEK_MS, "2000")
    with pytest.raises(Refused) as nonsense:
        client.set_topic_config(topic, {"segment.ms": "soon"})
    assert nonsense.value.code == INVALID_CONFIG


@feature("replace topic configs")
@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_replace(client: Client, topic: str) -> None:
    client.replace_topic_config(topic, {"retention.ms": "1000", "segment.ms": "2000"})
    client.replace_topic_config(topic, {"retention.ms": "3000"})
    config = client.topic_config(topic)
    assert (config["retention.ms"], config["segment.ms"]) == ("3000", WEEK_MS)
