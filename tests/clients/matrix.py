"""The table of client x feature: which scenario runs with which client, and what became of it.

A test says `@feature("compression: {compression}", compression=COMPRESSIONS)` and takes `client`; it is then run once
per client that has the call and per value. `@tools("create topic", ...)` is for a test of Apache's command line tools.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.clients.adapters.aio import Aiokafka
from tests.clients.adapters.confluent import ConfluentKafka
from tests.clients.adapters.java import Java
from tests.clients.adapters.kafka_python import KafkaPython
from tests.clients.model import Client
from tools import apache

CLIENTS: Final[dict[str, type[Client]]] = {one.name: one for one in (ConfluentKafka, KafkaPython, Aiokafka, Java)}
TOOLS: Final = "Java tools"
COLUMNS: Final = (*CLIENTS, TOOLS)
SECTIONS: Final = ("Topics", "Configs", "Produce", "Transactions", "Consume", "Groups", "Cluster")

COMMANDS: Final = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
}
"""Apache's command line tools by the names of their scripts."""

feature = pytest.mark.feature
tools = pytest.mark.tools
section = pytest.mark.section

JAVA_MARKS: Final = (
    pytest.mark.java,
    pytest.mark.skipif(apache.why_not() is not None, reason=f"Java clients: {apache.why_not()}"),
)


class Cell(NamedTuple):
    section: str
    feature: str
    client: str


def parametrize(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("feature")
    if marker is None or "client" not in metafunc.fixturenames:
        return
    cases = [
        pytest.param(name, *case.values(), marks=JAVA_MARKS if client is Java else ())
        for case in _product(marker.kwargs)
        for name, client in CLIENTS.items()
        if marker.args[0].format(**case) not in client.lacks
    ]
    metafunc.parametrize(("client", *marker.kwargs), cases, indirect=["client"])


def _product(axes: dict[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def cells(item: pytest.Item) -> list[Cell]:
    """The cells of the table that a test speaks for."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    named = item.get_closest_marker("section")
    if named is None:
        return []
    found = []
    if (marker := item.get_closest_marker("feature")) is not None:
        columns = [params["client"]] if "client" in params else list(CLIENTS)
        found += [Cell(named.args[0], marker.args[0].format(**params), column) for column in columns]
    if (marker := item.get_closest_marker("tools")) is not None:
        found += [Cell(named.args[0], label, TOOLS) for label in marker.args]
    return found


class Results:
    """Outcome per cell; a cell is good when every test that speaks for it passed."""

    def __init__(self) -> None:
        self._outcomes: dict[Cell, set[str]] = {}

    def add(self, cell: Cell, outcome: str) -> None:
        self._outcomes.setdefault(cell, set()).add(outcome)

    def write(self, path: Path) -> None:
        rows = [[*cell, sorted(outcomes)] for cell, outcomes in self._outcomes.items()]
        path.write_text(json.dumps({"cells": rows}, indent=1))
