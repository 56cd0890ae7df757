"""Apache's command line tools, as people type them: topics, configs, groups, console, offsets, performance.

They run in one JVM: a start each would cost more than the test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.adapters.java import Java
from tests.clients.matrix import COMMANDS, JAVA_MARKS, section, tools
from tests.clients.model import COMPRESSIONS, Client
from tests.clients.served import Served, stored_batches

pytestmark = list(JAVA_MARKS)

Tool = Callable[..., str]


@pytest.fixture
def run(client_of: Callable[[str], Client], broker: Served) -> Tool:
    """What a command line prints; it must end with `code`."""
    java = client_of("Java")
    assert isinstance(java, Java)

    def run(line: str, *, stdin: str = "", code: int = 0) -> str:
        command, *arguments = f"{line} --bootstrap-server {broker.bootstrap_servers}".split()
        left, text = java.tool(COMMANDS[command], *arguments, stdin=stdin)
        assert left == code, f"{line} ended with {left}:\n{text}"
        return text

    return run


@pytest.fixture
def topic(run: Tool, name: str) -> str:
    run(f"kafka-topics --create --topic {name} --partitions 1")
    return name


def numbers(count: int) -> str:
    return "".join(f"{number}\n" for number in range(count))


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]


@section("Topics")
@tools("create topic", "list and describe topics", "create partitions", "delete topic")
def test_topics(run: Tool, name: str) -> None:
    assert f"Created topic {name}." in run(
        f"kafka-topics --create --topic {name} --partitions 2 --config retention.ms=1000"
    )
    assert "already exists" in run(f"kafka-topics --create --topic {name}", code=1)
    assert name in run("kafka-topics --list").split()
    run(f"kafka-topics --alter --topic {name} --partitions 3")
    described = run(f"kafka-topics --describe --topic {name}")
    assert "PartitionCount: 3" in described
    assert "retention.ms=1000" in described
    assert described.count("Isr: 1") == 3
    run(f"kafka-topics --delete --topic {name}")
    assert name not in run("kafka-topics --list").split()
    assert "does not exist" in run(f"kafka-topics --describe --topic {name}", code=1)


@section("Configs")
@tools("describe configs", "change topic configs one by one")
def test_configs(run: Tool, topic: str) -> None:
    run(f"kafka-configs --alter --topic {topic} --add-config retention.ms=1000,cleanup.policy=[compact,delete]")
    described = run(f"kafka-configs --describe --topic {topic}")
    assert "retention.ms=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000" in described
    assert "cleanup.policy=compact,delete" in described
    run(f"kafka-configs --alter --topic {topic} --delete-config retention.ms")
    assert "retention.ms=1000" not in run(f"kafka-configs --describe --topic {topic}")
    assert "retention.ms=604800000" in run(f"kafka-configs --describe --topic {topic} --all")
    assert "InvalidConfigurationException" in run(
        f"kafka-configs --alter --topic {topic} --add-config retention.ms=soon", code=1
    )
    assert "log.segment.bytes=1073741824" in run("kafka-configs --describe --broker 1 --all")


@section("Topics")
@tools("delete records")
def test_delete_records(run: Tool, topic: str, tmp_path: Path) -> None:
    run(f"kafka-console-producer --topic {topic}", stdin=numbers(5))
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 3}]}))
    assert f"{topic}-0\tlow_watermark: 3" in run(f"kafka-delete-records --offset-json-file {wanted}")
    assert f"{topic}:0:3" in run(f"kafka-get-offsets --topic {topic} --time earliest").split()


@section("Produce")
@tools(*(f"compression: {compression}" for compression in COMPRESSIONS))
def test_compressions(run: Tool, topic: str, broker: Served) -> None:
    for compression in COMPRESSIONS:
        lines = "".join(f"{compression} {number} {'x' * 100}\n" for number in range(10))
        run(f"kafka-console-producer --topic {topic} --compression-codec {compression}", stdin=lines)
    assert {batch.codec for batch in stored_batches(broker, topic)} == set(range(len(COMPRESSIONS)))
    text = run(f"kafka-console-consumer --topic {topic} --from-beginning --max-messages 50")
    found = [line.rpartition(" ")[0] for line in text.splitlines() if line.endswith("xxx")]
    assert found == [f"{compression} {number}" for compression in COMPRESSIONS for number in range(10)]


@section("Produce")
@tools("keys, headers, nulls and timestamps")
def test_whole_records(run: Tool, topic: str) -> None:
    reader = [f"--reader-property {name}" for name in ("parse.key=true", "parse.headers=true", "null.marker=NULL")]
    run(f"kafka-console-producer --topic {topic} {' '.join(reader)}", stdin="a:1,b:2\tk\tv\nc:3\tk\tNULL\n")
    printed = ("print.key", "print.headers", "print.timestamp", "print.partition", "print.offset")
    formatter = " ".join(f"--formatter-property {name}=true" for name in printed)
    text = run(f"kafka-console-consumer --topic {topic} --from-beginning --max-messages 2 {formatter}")
    found = [re.sub(r"CreateTime:\d{13}", "T", line) for line in text.splitlines() if "Partition:" in line]
    assert found == ["T\tPartition:0\tOffset:0\ta:1,b:2\tk\tv", "T\tPartition:0\tOffset:1\tc:3\tk\tnull"]


@section("Produce")
@tools("acks: 1", "acks: all", "idempotent producer")
def test_performance(run: Tool, topic: str) -> None:
    for acks, idempotent in (("1", "false"), ("all", "true")):
        load = f"--topic {topic} --num-records 3000 --record-size 200 --throughput -1"
        properties = f"acks={acks} enable.idempotence={idempotent} linger.ms=5"
        run(f"kafka-producer-perf-test {load} --command-property {properties}")
    text = run(f"kafka-consumer-perf-test --topic {topic} --num-records 6000 --timeout 20000")
    assert text.splitlines()[-1].split(", ")[4] == "6000"
    assert "Avg latency" in run(
        f"kafka-e2e-latency --topic {topic} --num-records 20 --producer-acks all --record-size 50"
    )


@section("Consume")
@tools("assign, from the earliest", "seek to an offset")
def test_console_assign(run: Tool, topic: str) -> None:
    run(f"kafka-console-producer --topic {topic}", stdin=numbers(6))
    text = run(f"kafka-console-consumer --topic {topic} --partition 0 --offset earliest --max-messages 6")
    assert text.split()[:6] == list("012345")
    text = run(f"kafka-console-consumer --topic {topic} --partition 0 --offset 4 --max-messages 2")
    assert text.split()[:2] == ["4", "5"]


@section("Consume")
@tools("seek by time")
def test_offsets_by_time(run: Tool, topic: str) -> None:
    def at(time: str) -> str:
        return run(f"kafka-get-offsets --topic {topic} --time {time}").strip()

    assert at("max-timestamp") == ""
    run(f"kafka-console-producer --topic {topic}", stdin=numbers(6))
    assert at("earliest") == f"{topic}:0:0"
    assert at("latest") == f"{topic}:0:6"
    assert at("1600000000000") == f"{topic}:0:0"
    assert at("9600000000000") == ""
    assert at("max-timestamp").startswith(f"{topic}:0:")


@section("Groups")
@tools(
    "subscribe, commit and resume",
    "list and describe groups",
    "read a group's offsets",
    "alter a group's offsets",
    "delete a group's offsets",
    "delete a group",
)
def test_groups(run: Tool, topic: str) -> None:
    run(f"kafka-console-producer --topic {topic}", stdin=numbers(10))
    consume = f"--topic {topic} --group {topic} --from-beginning --max-messages"
    assert (
        list("0123456") == [word for word in run(f"kafka-console-consumer {consume} 7").split() if word.isdigit()][:7]
    )
    assert [topic, "Empty"] in rows(run("kafka-consumer-groups --list --state"))
    assert [topic, "Classic", "consumer"] in rows(run("kafka-groups --list"))

    def offsets() -> list[str]:
        (row,) = [
            row for row in rows(run(f"kafka-consumer-groups --describe --group {topic}")) if row[:2] == [topic, topic]
        ]
        return row[2:6]

    assert offsets() == ["0", "7", "10", "3"]
    reset = f"--reset-offsets --group {topic} --topic {topic}"
    for how, offset in (
        ("--shift-by -2", 5),
        ("--to-offset 9", 9),
        ("--to-latest", 10),
        ("--to-datetime 2020-01-01T00:00:00.000", 0),
        ("--by-duration PT0S", 10),
        ("--to-earliest", 0),
        ("--to-offset 8", 8),
    ):
        assert [topic, topic, "0", str(offset)] in rows(run(f"kafka-consumer-groups {reset} {how} --execute")), how
        assert offsets()[1] == str(offset), how
    assert list("89") == [word for word in run(f"kafka-console-consumer {consume} 2").split() if word.isdigit()][:2]
    assert "Successful" in run(f"kafka-consumer-groups --delete-offsets --group {topic} --topic {topic}")
    assert "was successful" in run(f"kafka-consumer-groups --delete --group {topic}")
    assert [topic, "Empty"] not in rows(run("kafka-consumer-groups --list --state"))


@section("Cluster")
@tools("describe cluster", "describe log dirs")
def test_cluster(run: Tool, topic: str, broker: Served) -> None:
    run(f"kafka-console-producer --topic {topic}", stdin=numbers(3))
    assert re.search(r"Cluster ID: [A-Za-z0-9_-]{22}(?!\S)", run("kafka-cluster cluster-id"))
    assert ["1", *broker.bootstrap_servers.split(":")] in [row[:3] for row in rows(run("kafka-cluster list-endpoints"))]
    described = json.loads(run(f"kafka-log-dirs --describe --topic-list {topic}").splitlines()[-1])
    (directory,) = described["brokers"][0]["logDirs"]
    assert directory["error"] is None
    size = sum(batch.size for batch in stored_batches(broker, topic))
    assert [(one["partition"], one["size"]) for one in directory["partitions"]] == [(f"{topic}-0", size)]
    assert re.search(r"Produce\(0\): 0 to \d+ \[usable: \d+\]", run("kafka-broker-api-versions"))


@section("Groups")
@tools("assignor: roundrobin")
def test_verifiable(run: Tool, topic: str) -> None:
    run(f"kafka-console-producer --topic {topic}", stdin=numbers(20))
    strategy = "--assignment-strategy org.apache.kafka.clients.consumer.RoundRobinAssignor"
    text = run(f"kafka-verifiable-consumer --topic {topic} --max-messages 20 --group-id {topic} {strategy}")
    events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 20
    committed = [event for event in events if event["name"] == "offsets_committed"]
    assert committed[-1]["offsets"] == [{"topic": topic, "partition": 0, "offset": 20}]
