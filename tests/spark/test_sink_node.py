"""The node is killed (kill -9) at each point of a sink's epoch, between and under a driver's requests: tasks and driver
wait for it and repeat, and a reader with read_committed gets every row once. Without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.killable import killable
from tests.spark import sinking
from tests.spark.sinking import attempts, committed_values
from tests.spark.sourcing import Log
from tidelog.spark.link import Link
from tidelog.spark.sink.committing import Committer

POINTS = ("rows written", "before the decision", "decided", "one ended", "all ended")


@pytest.mark.timeout(300)
def test_the_node_dies_at_every_point(tmp_path: Path) -> None:
    with killable(tmp_path) as node:
        log = Log(node.bootstrap_servers)
        topic = log.topic(3, name="target")
        given = sinking.options(node.bootstrap_servers, topic=topic)

        for epoch, point in enumerate(POINTS):
            waiting = [point]

            def die(step: str, waiting: list[str] = waiting) -> None:
                if step in waiting:
                    waiting.remove(step)
                    node.kill()
                    node.start_again()

            rows = list(range(epoch * 30, epoch * 30 + 30))
            receipts = attempts(given, "query", f"run-{epoch}", rows, 3)
            die("rows written")
            with Link(given.kafka, patient=True) as link:
                Committer(link, given, "query", die).commit_epoch(epoch, receipts)
            assert not waiting, "it was killed at that point"
        values = committed_values(node.bootstrap_servers, topic)
        assert sorted(values) == list(range(len(POINTS) * 30))
