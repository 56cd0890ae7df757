"""One real process per worker, one client of each library on it, and the record of what passed.

TIDELOG_CLIENT_RESULTS=FILE makes a run write the outcome of every cell of the table (tools/client_table.py asks for
it); with --collect-only it writes which cells there are. TIDELOG_CLIENTS_AGAINST=apache judges the scenarios: the same
tests against Apache Kafka (where a handful fail, and others each time: a change is answered there before every reader
sees it).
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients import matrix
from tests.clients.adapters.java import Java
from tests.clients.members import Members
from tests.clients.model import Client
from tests.clients.served import Served, serve
from tools import apache

_BROKER = pytest.StashKey[Served]()
_RESULTS = pytest.StashKey[matrix.Results]()
_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RESULTS] = matrix.Results()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    matrix.parametrize(metafunc)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for cell in matrix.cells(item):
            item.user_properties.append(("client-table", list(cell)))
            if config.option.collectonly:
                config.stash[_RESULTS].add(cell, "collected")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    broker = item.config.stash.get(_BROKER, None)
    if report.failed and broker is not None:
        report.sections.append(("tidelog broker log", broker.log))


class _Recorder:
    """On the process that sees every report: the only one, or xdist's controller."""

    def __init__(self, config: pytest.Config) -> None:
        self._results = config.stash[_RESULTS]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            for name, value in report.user_properties:
                if name == "client-table":
                    self._results.add(matrix.Cell(*value), report.outcome)


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Recorder(session.config))


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = os.environ.get("TIDELOG_CLIENT_RESULTS")
    if path and not hasattr(session.config, "workerinput"):
        session.config.stash[_RESULTS].write(Path(path))


@pytest.fixture(scope="session")
def broker(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("apache")) as broker:
        pytestconfig.stash[_BROKER] = broker
        yield broker
        del pytestconfig.stash[_BROKER]


@pytest.fixture(autouse=True)
def _node_answers(request: pytest.FixtureRequest) -> None:
    """When the node has died every later test says so at once, instead of each client trying for its half minute."""
    if "broker" in request.fixturenames:
        host, port = request.getfixturevalue("broker").bootstrap_servers.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            pytest.fail(f"the node is gone: {error}", pytrace=False)


@pytest.fixture(scope="session")
def client_of(broker: Served) -> Iterator[Callable[[str], Client]]:
    """The client of that library, made at the first question."""
    made: dict[str, Client] = {}

    def get(name: str) -> Client:
        if name == "Java" and (missing := apache.why_not()):
            pytest.skip(f"Java clients: {missing}")
        if name not in made:
            made[name] = matrix.CLIENTS[name](broker.bootstrap_servers)
        return made[name]

    yield get
    for client in made.values():
        client.close()


@pytest.fixture
def client(request: pytest.FixtureRequest, client_of: Callable[[str], Client]) -> Client:
    return client_of(request.param)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of its own, for a topic or a group."""
    return f"{request.function.__name__[5:]}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(client: Client, name: str) -> str:
    client.create_topic(name)
    return name


@pytest.fixture
def java(client_of: Callable[[str], Client]) -> Java:
    client = client_of("Java")
    assert isinstance(client, Java)
    return client


@pytest.fixture
def members(java: Java, name: str) -> Iterator[Members]:
    """Those that are left are closed with the test."""
    made = Members(java, name)
    yield made
    for member in made.all:
        member.close()
