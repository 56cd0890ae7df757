"""The pytest plugin: a running node for any client. Nothing heavy is imported until a fixture is used.

    def test_orders(tidelog_broker, tidelog_topic):
        producer = Producer({"bootstrap.servers": tidelog_broker.bootstrap_servers})
        producer.produce(tidelog_topic, b"hello")

`tidelog_broker` is one node per run (per xdist worker), `tidelog_topic` a new topic per test, and
`tidelog_topic_factory` makes as many as you like. The node's log is shown with a failed test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidelog.testing.broker import Broker

_BROKER = pytest.StashKey["Broker"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("tidelog_config", "configuration of the tidelog_broker fixture, KEY=VALUE a line", type="linelist")
    parser.addini(
        "tidelog_process", "run the tidelog_broker fixture in a process of its own", type="bool", default=False
    )


@pytest.fixture(scope="session")
def tidelog_broker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """A running node on a free port, shared by the tests of this process."""
    from tidelog.testing.broker import Broker

    lines: list[str] = pytestconfig.getini("tidelog_config")
    config = dict(line.split("=", 1) for line in lines)
    with Broker(config, process=pytestconfig.getini("tidelog_process")) as broker:
        pytestconfig.stash[_BROKER] = broker
        try:
            yield broker
        finally:
            del pytestconfig.stash[_BROKER]


@pytest.fixture
def tidelog_topic_factory(tidelog_broker: Broker) -> Callable[..., str]:
    """Creates topics: tidelog_topic_factory(partitions=3) returns the name of a new one."""
    return tidelog_broker.create_topic


@pytest.fixture
def tidelog_topic(tidelog_topic_factory: Callable[..., str]) -> str:
    """The name of a new topic with one partition."""
    return tidelog_topic_factory()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    broker = item.config.stash.get(_BROKER, None)
    if report.failed and broker is not None and "tidelog_broker" in getattr(item, "fixturenames", ()):
        report.sections.append(("tidelog broker log", broker.log))
