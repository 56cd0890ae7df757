"""A real flow: from the source through Structured Streaming into tables of every format, and the audit by its
checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.audit_rig import delete_before, delete_topic, produce, transact
from tidelog.spark.audit import Report, audit, claim_of
from tidelog.spark.lake import LakeTable, open_table
from tidelog.spark.link import Link
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)
BEGIN_MS = 1_790_000_000_000
FORMATS = ("delta", "parquet", "iceberg")


class Flow:
    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, home: Path, formats: tuple[str, ...]) -> None:
        self.tables = {format: open_table(str(home / format), format) for format in formats}
        self.checkpoint = home / "checkpoint"
        self._spark = spark
        self._options = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "failOnDataLoss": "false",
        }
        self.topic = topic

    def run(self, checkpoint: Path | None = None) -> None:
        """Until all that is there now has landed."""
        tables = list(self.tables.values())

        def land(frame: DataFrame, batch: int) -> None:
            for table in tables:
                table.sink()(frame, batch)

        rows = self._spark.readStream.format("tidelog").options(**self._options).load()
        query = (
            rows.selectExpr("*", "to_date(timestamp) AS event_date")
            .writeStream.foreachBatch(land)
            .option("checkpointLocation", str(checkpoint or self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(200)

    def check(self, link: Link, table: LakeTable) -> Report:
        claim = claim_of(self.checkpoint)
        return audit(
            link,
            table,
            [self.topic],
            ends=claim.ends,
            topic_ids=claim.topic_ids,
            created_anew=claim.created_anew,
        )


@pytest.fixture(scope="module")
def link(broker: Broker) -> Iterator[Link]:
    with Link({"bootstrap.servers": broker.bootstrap_servers}) as link:
        yield link


def test_what_a_flow_has_landed_balances_in_every_format(
    spark: SparkSession, broker: Broker, link: Link, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    topic = broker.create_topic(partitions=2)
    transact(bootstrap, topic, "flow", [(10, True), (5, False), (20, True)])
    produce(bootstrap, topic, [(1, BEGIN_MS + number * 60_000) for number in range(30)])
    flow = Flow(spark, bootstrap, topic, tmp_path, FORMATS)
    flow.run()
    assert claim_of(flow.checkpoint).batch == 0
    for table in flow.tables.values():
        report = flow.check(link, table)
        assert report.balanced, report.table()
        assert report.total("records") == report.total("rows") == 60
    # What follows is the same for all.
    table = flow.tables["delta"]
    flow.tables = {"delta": table}
    # More comes: the flow is behind, and has lost nothing.
    produce(bootstrap, topic, [(1, BEGIN_MS)] * 7)
    report = flow.check(link, table)
    assert report.balanced and [one.log.stretch.stable_end - one.log.stretch.end for one in report.partitions] == [0, 7]
    assert not audit(link, table, [topic]).balanced
    flow.run()
    # Retention deletes what has landed; then a second checkpoint lands the rest once more.
    delete_before(bootstrap, topic, 1, 12)
    table.merge_small_files()
    report = flow.check(link, table)
    assert report.balanced and (report.total("records"), report.total("deleted")) == (55, 12), report.table()
    flow.run(tmp_path / "another")
    report = flow.check(link, table)
    assert (report.total("missing"), report.total("doubled"), report.total("surplus")) == (0, 55, 0)
    assert [(span.partition, span.first, span.last) for span in report.doubled] == [
        (0, 0, 9),
        (0, 17, 36),
        (1, 12, 36),
    ]


def test_a_flow_that_went_on_with_a_topic_created_again_balances(
    spark: SparkSession, broker: Broker, link: Link, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    topic = broker.create_topic()
    produce(bootstrap, topic, [(0, BEGIN_MS + number) for number in range(20)])
    flow = Flow(spark, bootstrap, topic, tmp_path, ("delta",))
    flow.run()
    delete_topic(bootstrap, topic)
    broker.create_topic(topic)
    produce(bootstrap, topic, [(0, BEGIN_MS + 5000 + number) for number in range(12)])
    report = flow.check(link, flow.tables["delta"])
    assert list(report.unknown) == [topic] and not report.balanced
    flow.run()
    assert claim_of(flow.checkpoint).created_anew == {topic}
    report = flow.check(link, flow.tables["delta"])
    assert report.balanced, report.table()
    assert (report.total("records"), report.partitions[0].earlier) == (12, 20)
