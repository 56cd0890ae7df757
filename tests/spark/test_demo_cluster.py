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
from tests.spark.jvm import java_options
from tidelog.spark.audit import Report
from tidelog.spark.pipeline import load
from tidelog.spark.pipeline.checking import Finding, check
from tidelog.testing import Broker
from tools.demo.acts.pipeline import ADDRESS, TEMPLATE
from tools.demo.acts.shop import PARTITIONS
from tools.demo.events import TOPICS
from tools.demo.generator import Generator
from tools.demo.landed import behind, landed_rows, log_ends
from tools.demo.mending import LARGE

RECORDS = 1500
SPARK = """\
  spark.master: {master}
  spark.executor.memory: {mib}m
  spark.executor.extraJavaOptions: {java}
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the cluster's processes are found by /proc")
@pytest.mark.timeout(900)  # a cluster of five JVMs and eleven flows; minutes where others work as well
def test_the_demos_pipeline_runs_on_a_master_and_two_workers(
    broker: Broker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    free = available_mib()
    if free is not None and free < NEEDED_MIB:
        pytest.skip(f"a Spark cluster needs {NEEDED_MIB} MiB of memory, {free} are available")
    acked = open_and_close_the_shop(broker)
    file = tmp_path / "shop.yaml"
    with Standalone(tmp_path / "cluster") as cluster:
        text = TEMPLATE.read_text().replace(ADDRESS, broker.bootstrap_servers)
        text = text.replace("payload.amount >= 1000", f"payload.amount >= {LARGE:g}")  # as it is, no order is large
        file.write_text(text + SPARK.format(master=cluster.master, mib=EXECUTOR_MIB, java=java_options()))
        run_once(file)
    pipeline = load(file)
    spark = request.getfixturevalue("spark")  # beside the cluster it would take memory
    found = dict(check(pipeline, [], lambda text: None, spark=spark))
    assert {name.partition(" ")[0] for name in found} == set(pipeline.flows)
    off = [f"{name}:\n{one.table()}" for name, one in found.items() if one.verdict != "balanced"]
    assert not off, "\n".join(off)
    # A check does not judge what a flow has not come to, and of nothing all is true.
    ends = log_ends(broker.bootstrap_servers, TOPICS)
    assert set(behind(pipeline, ends).values()) == {0}, behind(pipeline, ends)
    assert landed_rows(pipeline) == sum(ends.values()) == acked
    assert [name for name, one in found.items() if not judged(one)] == []
    # Executors were on both workers: nothing of it ran in the driver alone.
    logs = list((tmp_path / "cluster").glob("work-*/app-*/*/stderr"))
    assert {log.parents[2].name for log in logs} == {"work-0", "work-1"}


def judged(found: Finding) -> int:
    """How many records, or what they come to when they are computed anew."""
    return found.total("records") if isinstance(found, Report) else next(iter(found.counts.values()))


def open_and_close_the_shop(broker: Broker) -> int:
    """How many records were acknowledged. All producers have told the audit that no more will come."""
    for topic in TOPICS:
        broker.create_topic(topic, partitions=PARTITIONS)
    generator = Generator(broker.bootstrap_servers, seed=7, rate=1000)
    until(lambda: generator.acked_in_all() >= RECORDS, "the shop's records are not acknowledged")
    assert generator.close(60) == 0
    assert generator.refused == 0
    return generator.acked_in_all()


def run_once(file: Path) -> None:
    command = [sys.executable, "-m", "tidelog", "pipeline", "run", "--once", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-3000:]}"
