"""DescribeConfigs against the answers of a running Apache Kafka 4.3.1 (described.tsv), for the same settings.

To make described.tsv again: python -m tests.unit.metadata.test_config_describe
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tidelog.metadata.config import BrokerValues
from tidelog.metadata.config.describe import (
    TYPE_CODES,
    UNKNOWN_TYPE_CODE,
    DescribedConfig,
    Source,
    describe_broker,
    describe_broker_defaults,
    describe_group,
    describe_topic,
)
from tidelog.metadata.config.own import DEFAULTS
from tools.apache import ApacheKafka, apache_libs, why_not

HERE = Path(__file__).parent
GOLDEN = HERE / "described.tsv"
SOURCES = {
    Source.TOPIC: "DYNAMIC_TOPIC_CONFIG",
    Source.DYNAMIC_BROKER: "DYNAMIC_BROKER_CONFIG",
    Source.DYNAMIC_DEFAULT_BROKER: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    Source.STATIC_BROKER: "STATIC_BROKER_CONFIG",
    Source.DEFAULT: "DEFAULT_CONFIG",
    Source.GROUP: "DYNAMIC_GROUP_CONFIG",
}
TYPES = {code: name.upper() for name, code in TYPE_CODES.items()} | {UNKNOWN_TYPE_CODE: "UNKNOWN"}
EXTRA = {
    "log.retention.hours": "2",
    "log.roll.ms": "7200000",
    "num.partitions": "3",
    "ssl.key.password": "secret",
    "custom.plugin.key": "foo",
    "auto.create.topics.enable": "TRUE",
    "log.cleaner.io.max.bytes.per.second": "12345678",
    "group.consumer.session.timeout.ms": "46000",
    "log.initial.task.delay.ms": "1000",
}
STATIC = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "broker.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "log.dirs": "/data",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
} | EXTRA
BROKER = BrokerValues(
    STATIC,
    {"log.segment.bytes": "3000000", "log.cleaner.threads": "2", "listener.name.plaintext.max.connections": "50"},
    # Apache sets min.insync.replicas itself, because eligible leader replicas need it.
    {
        "log.segment.bytes": "4000000",
        "message.max.bytes": "2000000",
        "log.retention.ms": "7777777",
        "min.insync.replicas": "1",
    },
)
OVERRIDES = {"retention.ms": "5000", "cleanup.policy": "compact,delete", "segment.bytes": "2000000"}


def apache_describes(directory: Path) -> str:
    with ApacheKafka(directory, heap="512m", properties=EXTRA) as kafka:
        command = [
            "java",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{apache_libs()}/*",
            str(HERE / "DescribeConfigs.java"),
            str(kafka.port),
        ]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        text = text.replace(str(directory / "logs"), "/data")
        return text.replace(f":{kafka.port}", ":9092").replace(f":{kafka.controller_port}", ":9093")


def lines(resource: str, described: Iterable[DescribedConfig]) -> Iterator[str]:
    for config in sorted(described, key=lambda config: config.name):
        synonyms = (f"{SOURCES[s.source]}:{s.name}={'null' if s.value is None else s.value}" for s in config.synonyms)
        yield "\t".join(
            (
                resource,
                config.name,
                "null" if config.value is None else config.value,
                SOURCES[config.source],
                "read-only" if config.read_only else "-",
                "sensitive" if config.sensitive else "-",
                TYPES[config.type_code],
                " ".join(synonyms),
            )
        )


def we_describe() -> list[str]:
    return [
        *lines("BROKER:1", describe_broker(BROKER)),
        *lines("BROKER:", describe_broker_defaults(BROKER)),
        *lines("TOPIC:t", describe_topic(OVERRIDES, BROKER)),
        *lines("TOPIC:u", describe_topic({}, BROKER)),
        *lines("GROUP:g", describe_group({"consumer.session.timeout.ms": "50000"}, BROKER)),
        *lines("GROUP:h", describe_group({}, BROKER)),
    ]


def comparable(rows: Iterable[str]) -> list[str]:
    """Without our own configs and those whose default is not Kafka's."""
    return [row for row in rows if (name := row.split("\t")[1]) not in DEFAULTS and not name.startswith("tidelog.")]


def test_every_resource_is_described_as_kafka_describes_it() -> None:
    theirs = comparable(GOLDEN.read_text(encoding="utf-8").splitlines())
    assert comparable(we_describe()) == theirs
    assert len(theirs) > 430


@pytest.mark.java
@pytest.mark.skipif(why_not() is not None, reason=f"Apache Kafka cannot run here: {why_not()}")
def test_a_running_kafka_still_says_so(tmp_path: Path) -> None:
    assert apache_describes(tmp_path) == GOLDEN.read_text(encoding="utf-8")


def test_only_the_names_asked_for() -> None:
    names = {"retention.ms", "nonsense"}
    assert [config.name for config in describe_topic({}, BROKER, names)] == ["retention.ms"]
    assert [config.name for config in describe_broker(BROKER, {"node.id"})] == ["node.id"]
    assert [config.name for config in describe_group({}, BROKER, [])] == []


def test_a_secret_is_never_shown() -> None:
    config = describe_broker(BROKER, {"ssl.key.password"})[0]
    assert (config.value, config.sensitive, [s.value for s in config.synonyms]) == (None, True, [None])


def test_every_config_is_described_with_its_line_of_documentation() -> None:
    assert describe_topic({}, BROKER, {"retention.ms"})[0].doc == "How long records are kept; -1 is for ever."
    assert [config.name for config in describe_broker(BROKER) if not config.doc] == ["custom.plugin.key"]


def test_an_internal_topic_config_shows_only_where_it_is_set() -> None:
    name = "internal.segment.bytes"
    assert describe_topic({}, BROKER, {name}) == []
    assert [config.value for config in describe_topic({name: "100"}, BROKER, {name})] == ["100"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        GOLDEN.write_text(apache_describes(Path(scratch)), encoding="utf-8")
