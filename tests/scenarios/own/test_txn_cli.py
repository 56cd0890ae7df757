"""`tidelog txn` on a real broker: on Tidelog, and the same on Apache Kafka."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest

from tidelog.cli.main import main

_numbers = itertools.count(1)


class Cli:
    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._bootstrap = bootstrap
        self._capsys = capsys
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self._capsys.readouterr()
        found = main([*arguments, "--bootstrap-server", self._bootstrap])
        output = self._capsys.readouterr()
        self.err = output.err
        assert found == code, f"{arguments}: exit code {found}\n{output.out}{output.err}"
        return output.out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture
def cli(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(bootstrap, capsys)


@pytest.fixture
def topic(cli: Cli) -> str:
    name = f"txn-cli-{next(_numbers)}"
    cli("topic", "create", name, "--partitions", "1")
    return name


def open_transaction(bootstrap: str, topic: str) -> ck.Producer:
    producer = ck.Producer({"bootstrap.servers": bootstrap, "transactional.id": f"id-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    assert producer.flush(30) == 0
    return producer


def until(holds: Callable[[], bool]) -> None:
    """The test's own time limit is the end."""
    while not holds():
        time.sleep(0.02)


def test_list_and_describe(cli: Cli, bootstrap: str, topic: str) -> None:
    producer = open_transaction(bootstrap, topic)
    (listed,) = cli.json("txn", "list", "--pattern", f"id-{topic}")
    assert listed == {
        "transactional_id": f"id-{topic}",
        "coordinator": 1,
        "producer_id": listed["producer_id"],
        "state": "Ongoing",
    }
    assert listed in cli.json("txn", "list")
    assert listed in cli.json("txn", "list", "--state", "Ongoing", "--producer-id", str(listed["producer_id"]))
    assert listed not in cli.json("txn", "list", "--state", "Empty,CompleteCommit")
    assert listed not in cli.json("txn", "list", "--longer-than", "100000")
    (described,) = cli.json("txn", "describe", f"id-{topic}")
    assert described["state"] == "Ongoing"
    assert described["partitions"] == [{"topic": topic, "partition": 0}]
    assert described["start_ms"] > 0
    assert f"{topic}-0" in cli("txn", "describe", f"id-{topic}")
    producer.commit_transaction(30)
    until(lambda: cli.json("txn", "describe", f"id-{topic}")[0]["state"] == "CompleteCommit")
    cli("txn", "describe", "no-such-id", code=1)
    assert "no-such-id" in cli.err


def test_a_transaction_that_hangs_is_aborted(cli: Cli, bootstrap: str, topic: str) -> None:
    producer = open_transaction(bootstrap, topic)
    (hanging,) = cli.json("txn", "abort", f"{topic}:0")
    assert hanging["start_offset"] == 0
    assert str(hanging["producer_id"]) in cli("txn", "abort", f"{topic}:0")
    cli("txn", "abort", f"{topic}:0", "--start-offset", "7", code=1)
    assert "no such transaction is open" in cli.err
    assert cli.json("txn", "abort", f"{topic}:0", "--start-offset", "0") == hanging
    assert cli.json("txn", "abort", f"{topic}:0") == []
    assert cli("consume", topic, "--from-beginning", "--exit-at-end", "--isolation-level", "read_committed") == ""
    producer.purge()


@pytest.mark.parametrize("partition", ["t", "t:", "t:0,1", "t:x"])
def test_one_partition_is_named(cli: Cli, partition: str) -> None:
    cli("txn", "abort", partition, code=2)
