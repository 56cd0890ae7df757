"""The broker for tests in its three forms."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.testing import Broker
from tidelog.testing.wire import Wire


def topics(broker: Broker) -> list[str | None]:
    with Wire(broker.bootstrap_servers) as wire:
        return [topic.name for topic in wire.call(MetadataRequest(topics=None), 9, MetadataResponse).topics]


def test_in_a_thread_it_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    with Broker() as broker:
        name = broker.create_topic()
        assert topics(broker) == [name]
        data = broker.data
    assert not os.path.exists(data)
    # Threads of earlier tests may end meanwhile.
    assert set(threading.enumerate()) <= before
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.bootstrap_servers


def test_in_a_process_with_data_that_stays(tmp_path: Path) -> None:
    with Broker(process=True, data=tmp_path) as broker:
        broker.create_topic("kept")
    with Broker(data=tmp_path) as broker:
        assert topics(broker) == ["kept"]


def test_on_the_running_loop() -> None:
    async def main() -> list[str | None]:
        async with Broker() as broker:
            await asyncio.to_thread(broker.create_topic, "mine")
            return await asyncio.to_thread(topics, broker)

    assert asyncio.run(main()) == ["mine"]


def test_two_at_once_do_not_meet() -> None:
    with Broker() as one, Broker() as two:
        one.create_topic("one")
        assert (topics(one), topics(two)) == (["one"], [])


def test_settings_and_topic_configs_reach_the_node() -> None:
    with Broker({"num.partitions": "7"}) as broker, Wire(broker.bootstrap_servers) as wire:
        broker.create_topic("t", partitions=-1)
        found = wire.call(MetadataRequest(topics=None), 9, MetadataResponse)
        assert len(found.topics[0].partitions) == 7
        with pytest.raises(RuntimeError, match=r"INVALID_CONFIG: .*retention\.ms"):
            broker.create_topic("u", config={"retention.ms": "x"})


def test_a_start_that_fails_says_why_and_cleans_up(tmp_path: Path) -> None:
    with Broker(data=tmp_path), pytest.raises(Exception, match="in use by another node"):
        Broker(data=tmp_path).start()
    with pytest.raises(RuntimeError, match=r"(?s)did not start.*node\.id=x"):
        Broker({"node.id": "x"}, process=True).start()


def test_only_a_process_can_be_killed() -> None:
    with Broker() as broker, pytest.raises(RuntimeError, match="process=True"):
        broker.kill()
