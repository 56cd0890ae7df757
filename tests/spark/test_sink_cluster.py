"""Attempts that fail and attempts that run twice, on a standalone cluster with speculation: no row twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark import sink_cluster
from tests.spark.faults.cluster import NEEDED_MIB, Standalone
from tests.spark.faults.processes import available_mib, kill_group
from tests.spark.sinking import committed_values
from tests.spark.sourcing import Log
from tidelog.client.transactions import list_transactions
from tidelog.testing import Broker

pytestmark = [
    pytest.mark.timeout(1200),  # four JVMs start, and two executors
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs all of 127.0.0.0/8, and /proc"),
]


# Spark never runs a second attempt on the host of the first.
HOSTS = ("127.0.0.1", "127.0.0.2")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    free = available_mib()
    if free is not None and free < NEEDED_MIB:
        pytest.skip(f"a Spark cluster needs {NEEDED_MIB} MiB of memory, {free} are available")
    with Standalone(tmp_path / "cluster", HOSTS) as cluster:
        yield cluster


def test_attempts_that_fail_or_run_twice_do_not_double_rows(
    broker: Broker, cluster: Standalone, tmp_path: Path
) -> None:
    log = Log(broker.bootstrap_servers)
    topic = log.topic(3)
    arguments = (broker.bootstrap_servers, topic, str(tmp_path), cluster.master)
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.sink_cluster", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, errors = driver.communicate(timeout=1000)
    finally:
        kill_group(driver.pid)
        driver.wait()
    assert driver.returncode == 0, errors[-4000:]
    reached = {path.name for path in tmp_path.iterdir()}
    failing, doubled = sink_cluster.FAILING, sink_cluster.DOUBLED
    assert {"failed", f"{failing}.1"} <= reached, "one attempt failed and was repeated"
    assert {f"{doubled}.0", f"{doubled}.1"} <= reached, "two attempts at one task wrote all their rows"
    assert sorted(committed_values(broker.bootstrap_servers, topic)) == list(range(sink_cluster.ROWS))
    assert log.ask(lambda cluster: list_transactions(cluster, ["Ongoing"])) == []
