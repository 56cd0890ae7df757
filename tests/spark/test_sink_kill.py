"""kill -9 of a driver, its JVM and all workers at each point of an epoch: after a restart every row is there once, in
other splits, for a reader with read_committed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark import sink_stream
from tests.spark.sinking import committed_values
from tests.spark.sourcing import Log
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A second session starts, beside everything else that a run of the tests does.
pytestmark = pytest.mark.timeout(1200)
EPOCHS = 3
ROWS = 100


@pytest.fixture(scope="module")
def story(spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The brokers, after all streams have died in their second epoch and were run to their ends."""
    home = tmp_path_factory.mktemp("kill")
    log = Log(broker.bootstrap_servers)
    (home / "input").mkdir()
    for epoch in range(EPOCHS):
        path = home / "input" / f"{epoch}.txt"
        path.write_text("\n".join(str(number) for number in range(epoch * ROWS, (epoch + 1) * ROWS)))
        os.utime(path, (epoch, epoch))  # Spark takes files by age
    for point in sink_stream.POINTS:
        log.topic(3, name=sink_stream.topic_of(point))
    doomed = subprocess.run(
        [sys.executable, "-m", "tests.spark.sink_stream", broker.bootstrap_servers, str(home)],
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=1000,
        check=False,
    )
    assert doomed.returncode == -signal.SIGKILL, doomed.stderr[-4000:]
    for point in sink_stream.POINTS:
        assert _commits(home, point) == {"0"}, "it died in its second epoch"
    queries = [sink_stream.start(spark, broker.bootstrap_servers, home, point) for point in sink_stream.POINTS]
    for query in queries:
        assert query.awaitTermination(600)
        assert query.exception() is None
    return broker.bootstrap_servers


def _commits(home: Path, point: str) -> set[str]:
    directory = home / "checkpoints" / sink_stream.topic_of(point) / "commits"
    return {path.name for path in directory.iterdir() if path.name.isdigit()}


@pytest.mark.parametrize("point", sink_stream.POINTS)
def test_every_row_is_there_once(story: str, point: str) -> None:
    assert sorted(committed_values(story, sink_stream.topic_of(point))) == list(range(EPOCHS * ROWS))
