"""A node that dies under a running query and comes back: the query waits for it and misses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.clients.killable import killable
from tests.spark.sourcing import Log, Row, ordered, rows_of


@pytest.mark.timeout(300)
def test_a_query_outlives_its_node(spark: SparkSession, tmp_path: Path) -> None:
    found: list[Row] = []
    with killable(tmp_path) as node:
        log = Log(node.bootstrap_servers)
        topic = log.topic()
        written = log.produce(topic, [{"value": b"before %d" % number} for number in range(50)])
        frame = log.stream(spark, subscribe=topic, startingOffsets="earliest").load()
        writer = frame.writeStream.foreachBatch(lambda batch, _: found.extend(rows_of(batch)))
        query = (
            writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        try:
            query.processAllAvailable()
            for _ in range(2):
                node.kill()
                node.start_again()  # meanwhile the planner asks, again and again
                written += log.produce(topic, [{"value": b"after %d" % number} for number in range(50)])
                query.processAllAvailable()
            assert ordered(found) == written
        finally:
            query.stop()
