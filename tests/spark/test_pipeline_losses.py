"""What becomes of a log under a pipeline between two of its runs: trimmed by retention, deleted and created again,
grown by partitions, written with a newer schema. Flows that must not lose anything stop and say why; those that may
go on lack exactly what was gone; and the audit says so of both."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow.parquet as pq

from tests.spark.sourcing import Log
from tidelog.client.errors import raise_first
from tidelog.client.metadata import TopicPartition
from tidelog.client.topics import create_partitions, delete_records, delete_topics
from tidelog.runtime.clock import SystemClock
from tidelog.spark.lake import open_table
from tidelog.spark.link import Link
from tidelog.spark.pipeline.checking import check
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.runner import Runner
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)  # a dozen queries; seconds each alone, many more beside others

HEAD = """\
name: losses
bootstrap.servers: {servers}
lake: lake
defaults:
  restart: {{first: 100ms, most: 1s, give_up_after: 50}}  # Spark's bad days are ridden out
flows:
"""


class Story:
    """A pipeline file that is changed between its runs."""

    def __init__(self, spark: SparkSession, servers: str, home: Path) -> None:
        self.log = Log(servers)
        self._spark = spark
        self._home = home
        self.told: list[str] = []

    def run(self, flows: str, *, fails: bool = False) -> Pipeline:
        """To its end; whether a flow is given up."""
        pipeline = load_text(HEAD.format(servers=self.log.bootstrap) + flows, self._home, "losses.yaml", {})
        self.told = []
        assert Runner(pipeline, self._spark, SystemClock(), self.told.append, once=True).run() == int(fails)
        return pipeline

    def given_up(self, flow: str) -> str:
        (line,) = [line for line in self.told if line.startswith(f"{flow}: given up")]
        return line

    def balance(self, pipeline: Pipeline, *flows: str) -> dict[str, bool]:
        return {name: report.balanced for name, report in check(pipeline, list(flows), lambda text: None)}

    def values(self, first: int, count: int, topic: str, partition: int = 0) -> None:
        self.log.produce(topic, [{"value": b"%d" % n, "partition": partition} for n in range(first, first + count)])


def offsets(pipeline: Pipeline, flow: str, partition: int = 0) -> list[int]:
    table = pipeline.flows[flow].table
    return sorted(
        row["offset"]
        for batch in open_table(table.path, table.format).rows()
        for row in batch.to_pylist()
        if row["partition"] == partition
    )


@pytest.fixture
def story(spark: SparkSession, broker: Broker, tmp_path: Path) -> Story:
    return Story(spark, broker.bootstrap_servers, tmp_path)


def _loss_flows(trimmed: str, anew: str) -> Callable[[bool], str]:
    def flows(strict: bool) -> str:
        made = ""
        for name, topic in (("trimmed", trimmed), ("anew", anew)):
            made += f"  {name}_strict: {{kind: ingest, topics: {topic}, fail_on_data_loss: {str(strict).lower()}}}\n"
            made += f"  {name}_lax: {{kind: ingest, topics: {topic}, fail_on_data_loss: false, format: parquet}}\n"
        return made

    return flows


def test_retention_and_a_topic_created_again(story: Story) -> None:
    log, trimmed, anew = story.log, story.log.topic(), story.log.topic()
    flows = _loss_flows(trimmed, anew)
    story.values(0, 100, trimmed)
    story.values(0, 30, anew)
    pipeline = story.run(flows(strict=True))
    assert set(story.balance(pipeline).values()) == {True}

    # Retention overtakes: 100 to 149 are gone before anybody read them. The other topic is another one.
    story.values(100, 100, trimmed)
    log.ask(lambda cluster: delete_records(cluster, {TopicPartition(trimmed, 0): 150}))
    log.ask(lambda cluster: delete_topics(cluster, [anew]))
    with Link({"bootstrap.servers": log.bootstrap}) as link:
        while link.existing([anew]):
            pass
    log.topic(name=anew)
    story.values(1000, 40, anew)
    story.run(flows(strict=True), fails=True)
    assert f"{trimmed}-0 begins at offset 150: 100 to 149 were deleted before they were read" in story.given_up(
        "trimmed_strict"
    )
    assert f"topic {anew} was deleted and created again: its id was" in story.given_up("anew_strict")
    assert offsets(pipeline, "trimmed_strict") == list(range(100))
    assert offsets(pipeline, "trimmed_lax") == [*range(100), *range(150, 200)]
    assert offsets(pipeline, "anew_strict") == list(range(30))
    assert offsets(pipeline, "anew_lax") == sorted([*range(30), *range(40)])
    # Of a topic that the flow has not seen nothing can be proved, and that is not balanced.
    assert story.balance(pipeline) == {
        "trimmed_strict": True,
        "trimmed_lax": True,
        "anew_strict": False,
        "anew_lax": True,
    }

    # The one way on is to say that the loss is accepted.
    story.run(flows(strict=False))
    assert offsets(pipeline, "trimmed_strict") == [*range(100), *range(150, 200)]
    assert offsets(pipeline, "anew_strict") == sorted([*range(30), *range(40)])
    assert set(story.balance(pipeline).values()) == {True}


def test_a_newer_schema_and_new_partitions(story: Story) -> None:
    topic = story.log.topic()

    def flows(schema: str) -> str:
        decode = f'decode: {{wire: json, schema: "{schema}"}}'
        return "".join(
            f"  {name}: {{kind: ingest, topics: {topic}, format: {name}, {decode}}}\n"
            for name in ("delta", "parquet", "iceberg")
        )

    def orders(first: int, count: int, partition: int, **more: object) -> None:
        values = [json.dumps({"id": n, **more}).encode() for n in range(first, first + count)]
        story.log.produce(topic, [{"value": value, "partition": partition} for value in values])

    orders(0, 20, 0)
    old = flows("id BIGINT")
    story.run(old)
    # Producers go first: what the flows do not know yet is left out of the payload, and stays in the value.
    raise_first(story.log.ask(lambda cluster: create_partitions(cluster, {topic: 2})).values())
    orders(20, 20, 1, country="de")
    pipeline = story.run(old)
    assert set(story.balance(pipeline).values()) == {True}
    orders(40, 20, 0, country="at")
    pipeline = story.run(flows("id BIGINT, country STRING"))
    assert set(story.balance(pipeline).values()) == {True}
    wanted = [*((n, None) for n in range(40)), *((n, "at") for n in range(40, 60))]
    for name in pipeline.flows:
        assert offsets(pipeline, name, 0) == list(range(40))
        assert offsets(pipeline, name, 1) == list(range(20))
        assert payloads(pipeline, name) == wanted
    # A field whose type changes is no growth: the flows stop before they write anything.
    orders(60, 1, 0)
    changed = story.run(flows("id STRING"), fails=True)
    for name in changed.flows:
        assert "column 'payload.id' is int64 in the table and string in the frame" in story.given_up(name)
    assert set(story.balance(changed).values()) == {True}


def payloads(pipeline: Pipeline, flow: str) -> list[tuple[int, str | None]]:
    table = pipeline.flows[flow].table
    files = open_table(table.path, table.format).files()
    rows = [row["payload"] for file in files for row in pq.ParquetFile(file).read(columns=["payload"]).to_pylist()]
    return sorted((payload["id"], payload.get("country")) for payload in rows)
