"""The broker for tests when things go wrong: it hides no bug of the node, hangs nobody, and cleans up."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import threading
from pathlib import Path

import pytest

from tidelog.metadata.config import ConfigError
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.testing import Broker
from tidelog.testing.wire import Wire


def test_a_durable_broker_in_a_thread_leaves_no_threads_either(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    for _ in range(2):
        with Broker(data=tmp_path) as broker:
            broker.create_topic()
    # Threads of earlier tests may end meanwhile.
    assert set(threading.enumerate()) <= before


def test_a_bug_of_the_node_is_not_a_test_that_passed() -> None:
    before = set(threading.enumerate())
    broker = Broker().start()
    node, runner = broker._node, broker._runner
    assert node is not None and runner is not None
    runner.loop.call_soon_threadsafe(node.services.fatal, AssertionError("a bug"))
    with pytest.raises(ConnectionError), Wire(broker.bootstrap_servers) as wire:
        while True:
            wire.call(ApiVersionsRequest(), 0, ApiVersionsResponse)
    with pytest.raises(AssertionError, match="a bug"):
        broker.stop()
    assert "the node stops: AssertionError: a bug" in broker.log
    assert not any(thread.name == "tidelog-broker" for thread in set(threading.enumerate()) - before)


def test_a_callback_that_fails_is_such_a_bug() -> None:
    broker = Broker().start()
    assert broker._runner is not None

    def fail() -> None:
        raise KeyError("nobody looks at callbacks")

    broker._runner.loop.call_soon_threadsafe(fail)
    with pytest.raises(KeyError):
        while True:
            if broker._node is not None and broker._node.has_failed:
                broker.stop()


def test_a_configuration_that_is_none_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A place for temporary files that no other test writes to.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    handlers = list(logging.getLogger("tidelog").handlers)
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Broker({"num.partitions": "many"}).start()

    async def main() -> None:
        async with Broker({"num.partitions": "many"}):
            pass

    with pytest.raises(ConfigError, match=r"num\.partitions"):
        asyncio.run(main())
    assert os.listdir(tmp_path) == []
    assert logging.getLogger("tidelog").handlers == handlers


def test_started_twice_is_a_mistake_and_started_again_is_not() -> None:
    broker = Broker()
    with broker, pytest.raises(RuntimeError, match="running already"):
        broker.start()
    with broker:
        broker.create_topic("again")
    broker.stop()


def test_on_its_own_loop_a_topic_is_awaited() -> None:
    """The plain call would wait for an answer of the very loop that it stops."""

    async def main() -> None:
        async with Broker() as broker:
            with pytest.raises(RuntimeError, match="create_topic_async"):
                broker.create_topic("t")
            assert await broker.create_topic_async("t", partitions=2) == "t"
            names = {await broker.create_topic_async() for _ in range(3)}
            assert len(names) == 3

    asyncio.run(main())


def test_names_of_topics_differ_between_brokers() -> None:
    with Broker() as one, Broker() as two:
        assert len({one.create_topic(), one.create_topic(), two.create_topic()}) == 3


def test_the_log_keeps_the_last_lines_only() -> None:
    with Broker() as broker:
        for number in range(3000):
            logging.getLogger("tidelog.test").warning("line %d", number)
        lines = broker.log.splitlines()
    assert len(lines) == 2000 and lines[-1].endswith("line 2999")
