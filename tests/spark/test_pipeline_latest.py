"""An ingest flow on a real node that begins at the latest records, with payloads whose schema is in a registry."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow.parquet as pq
from confluent_kafka import Producer
from fastavro import parse_schema, schemaless_writer

from tests.unit.spark.payload.http_registry import serve
from tidelog.runtime.clock import SystemClock
from tidelog.spark.audit import Report
from tidelog.spark.lake import open_table
from tidelog.spark.pipeline import Pipeline
from tidelog.spark.pipeline.checking import check
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.runner import Runner
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)

SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
PIPELINE = """\
name: late
bootstrap.servers: {servers}
lake: lake
flows:
  news:
    kind: ingest
    topics: news
    starting: latest
    decode: {{wire: confluent, registry: "{registry}"}}
"""


def produce(broker: Broker, schema_id: int, ids: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in ids:
        payload = io.BytesIO()
        schemaless_writer(payload, parse_schema(json.loads(SCHEMA)), {"id": number})
        producer.produce("news", b"\0" + schema_id.to_bytes(4, "big") + payload.getvalue())
    assert producer.flush(60) == 0


def run(pipeline: Pipeline, spark: SparkSession) -> None:
    assert Runner(pipeline, spark, SystemClock(), lambda line: None, once=True).run() == 0


def checked(pipeline: Pipeline) -> Report:
    ((name, report),) = check(pipeline, [], lambda line: None)
    assert name == "news" and isinstance(report, Report)
    return report


def test_what_came_before_the_first_run_is_not_owed(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    with serve() as registry:
        schema_id = registry.add("news-value", SCHEMA)
        text = PIPELINE.format(servers=broker.bootstrap_servers, registry=registry.url)
        pipeline = load_text(text, tmp_path, "late.yaml", {})
        broker.create_topic("news")
        produce(broker, schema_id, range(10))
        run(pipeline, spark)
        produce(broker, schema_id, range(10, 15))
        run(pipeline, spark)
    table = pipeline.flows["news"].table
    ids = [
        row["payload"]["id"]
        for file in open_table(table.path, table.format).files()
        for row in pq.ParquetFile(file).read(columns=["payload"]).to_pylist()
    ]
    assert sorted(ids) == list(range(10, 15))
    report = checked(pipeline)
    assert report.balanced
    assert [part.tally.records for part in report.partitions] == [5]
    (pipeline.work / "starts" / "news").unlink()
    ((_, found),) = check(pipeline, [], lambda line: None)
    assert found.verdict == "unknown" and "where that was is not in" in found.summary()
