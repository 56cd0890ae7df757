"""One Spark session for all tests of this folder, which run in one worker (tests/conftest.py), and nodes for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark import jvm
from tidelog.testing import Broker
from tools import apache

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.sourcing import Log

CLEANS_OFTEN = {"log.cleaner.backoff.ms": "200"}


@pytest.fixture(scope="session", autouse=True)
def short_lived() -> Iterator[None]:
    """Drivers, also those that tests start as processes of their own; executors are told by their driver."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in jvm.environment().items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def spark(short_lived: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores. Started in 5 to 20 s, so a test asks for it only if it needs one."""
    pytest.importorskip("pyspark")
    pytest.importorskip("pyarrow")
    from tidelog.spark.session import local_session

    home = tmp_path_factory.mktemp("spark")
    session = local_session(
        "tests",
        **{
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.local.dir": str(home / "local"),
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={home}",
            "spark.sql.streaming.metricsEnabled": "false",
            "spark.sql.streaming.stopTimeout": "60s",
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A node per module, in a process of its own: Spark's driver shares no GIL with it, and it can be killed."""
    with Broker(process=True) as broker:
        yield broker


@pytest.fixture(scope="module", params=["tidelog", pytest.param("apache", marks=pytest.mark.java)])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """The same tests on Tidelog and on Apache Kafka, where that can be had. Logs are cleaned often."""
    pytest.importorskip("pyspark")
    from tests.spark.sourcing import Log

    if request.param == "tidelog":
        with Broker(CLEANS_OFTEN, process=True) as broker:
            yield Log(broker.bootstrap_servers, broker.data)
        return
    if missing := apache.why_not():
        pytest.skip(f"no Apache Kafka: {missing}")
    few = {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5"}
    directory = tmp_path_factory.mktemp("apache")
    with apache.ApacheKafka(directory, heap="300m", properties={**CLEANS_OFTEN, **few}) as kafka:
        yield Log(kafka.bootstrap_servers, kafka.data[0])
