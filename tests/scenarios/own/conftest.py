"""The brokers that our own client and commands are tried on: Tidelog, and Apache Kafka where Java is at hand."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from tidelog.client.cluster import Cluster
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.loop import run
from tidelog.runtime.net import OsNet
from tidelog.testing import Broker
from tools.apache import ApacheKafka, why_not

T = TypeVar("T")
# One worker for all that needs Apache Kafka: it takes seconds to start and half a gigabyte.
APACHE = pytest.param("apache", marks=pytest.mark.java)


@pytest.fixture(scope="session", params=["tidelog", APACHE])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap servers of a broker of each kind."""
    if request.param == "tidelog":
        with Broker() as broker:
            yield broker.bootstrap_servers
        return
    if missing := why_not():
        pytest.skip(f"no Apache Kafka to compare with: {missing}")
    with ApacheKafka(tmp_path_factory.mktemp("apache"), heap="384m") as kafka:
        yield kafka.bootstrap_servers


def with_cluster(bootstrap: str, scenario: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
    async def main() -> T:
        async with Cluster(OsNet(), SystemClock(), bootstrap) as cluster:
            return await scenario(cluster)

    return run(main())
