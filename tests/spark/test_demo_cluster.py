"""The demo's pipeline on a standalone cluster, as docs/spark-cluster.md starts one: a master and two workers out of the
wheel, all flows over what the demo's shop has sent, and a check that balances."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tests.spark.faults.cluster import EXECUTOR_MIB, NEEDED_MIB, Standalone
from tests.spark.faults.processes import available_mib, until
from tidelog.spark.pipeline import load
from tidelog.testing import Broker
from tools.demo.acts.pipeline import ADDRESS, TEMPLATE
from tools.demo.acts.shop import PARTITIONS
from tools.demo.events import TOPICS
from tools.demo.generator import Generator

RECORDS = 1500
SPARK = f"""\
  spark.master: MASTER
  spark.executor.memory: {EXECUTOR_MIB}m
  spark.executor.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the cluster's processes are found by /proc")
@pytest.mark.timeout(900)  # a cluster of five JVMs and eleven flows; minutes where others work as well
def test_the_demos_pipeline_runs_on_a_master_and_two_workers(broker: Broker, tmp_path: Path) -> None:
    free = available_mib()
    if free is not None and free < NEEDED_MIB:
        pytest.skip(f"a Spark cluster needs {NEEDED_MIB} MiB of memory, {free} are available")
    acked = open_and_close_the_shop(broker)
    file = tmp_path / "shop.yaml"
    with Standalone(tmp_path / "cluster") as cluster:
        text = TEMPLATE.read_text().replace(ADDRESS, broker.bootstrap_servers)
        file.write_text(text + SPARK.replace("MASTER", cluster.master))
        tidelog("run", "--once", file)
        told = tidelog("check", file)
    assert "shop: balanced" in told, told
    flows = load(file).flows
    assert all(f"\n{name}" in f"\n{told}" for name in flows)
    # Executors were on both workers: nothing of it ran in the driver alone.
    logs = list((tmp_path / "cluster").glob("work-*/app-*/*/stderr"))
    assert {log.parents[2].name for log in logs} == {"work-0", "work-1"}
    assert acked >= RECORDS


def open_and_close_the_shop(broker: Broker) -> int:
    """How many records were acknowledged. All producers have told the audit that no more will come."""
    for topic in TOPICS:
        broker.create_topic(topic, partitions=PARTITIONS)
    generator = Generator(broker.bootstrap_servers, seed=7, rate=1000)
    until(lambda: generator.acked_in_all() >= RECORDS, "the shop's records are not acknowledged")
    assert generator.close(60) == 0
    assert generator.refused == 0
    return generator.acked_in_all()


def tidelog(verb: str, *arguments: str | Path) -> str:
    command = [sys.executable, "-m", "tidelog", "pipeline", verb, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{verb}: {done.stdout[-6000:]}{done.stderr[-3000:]}"
    return done.stdout
