"""from_confluent and to_confluent in a session: modes, formats, a stream, errors before any job, the docs' page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from tests.spark.sourcing import Log
from tests.unit.spark.payload.http_registry import HttpRegistry, serve
from tidelog.spark.functions import RegistryError, SchemaError, from_confluent, to_confluent
from tidelog.spark.payload.encoding import Encoder, EncodeSpec
from tidelog.spark.payload.schema import Schema
from tidelog.testing import Broker

# On a loaded machine the first query of a session alone takes half a minute.
pytestmark = pytest.mark.timeout(300)

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
            {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": ["null", "string"]}}},
            {"name": "either", "type": ["null", "string", "long"], "default": None},
        ],
    }
)
JSON = json.dumps(
    {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "tags": {"type": "object", "additionalProperties": {"type": "string"}},
            "any": {},
        },
    }
)
PROTOBUF = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
message Order {
  int64 id = 1; uint64 big = 2; google.protobuf.Timestamp at = 3; map<string, int32> sizes = 4; repeated Line lines = 5;
  google.protobuf.Duration took = 6;
}
message Line { string name = 1; optional double price = 2; }
"""
AT = datetime(2026, 11, 16, 12, 0, 0, 123000, tzinfo=UTC)


@pytest.fixture(scope="module")
def registry() -> Iterator[HttpRegistry]:
    with serve() as registry:
        yield registry


def frame(spark: SparkSession, *records: bytes | None, parts: int = 1) -> DataFrame:
    rows = [(number, record) for number, record in enumerate(records)]
    return spark.createDataFrame(rows, "n int, value binary").repartition(parts, "n")


def records_of(schema: Schema, *rows: dict[str, Any]) -> list[bytes]:
    encoder = Encoder(EncodeSpec(schema))
    found: list[bytes] = encoder.encode(pa.array(rows, encoder.arrow_type)).to_pylist()
    return found


def test_avro_both_ways_with_a_registry(spark: SparkSession, registry: HttpRegistry) -> None:
    number = registry.add("orders-value", AVRO)
    rows = [
        {"id": 1, "at": AT, "state": "NEW", "sum": None, "tags": [("a", ["x", None])], "either": {"member_long": 5}},
        {"id": 2, "at": AT, "state": "DONE", "sum": None, "tags": [], "either": None},
    ]
    from decimal import Decimal

    for row in rows:
        row["sum"] = Decimal("12.34")
    good = records_of(Schema("avro", AVRO, id=number), *rows)
    source = frame(spark, good[0], None, good[1][:-1], b"junk!", b"\x00\x00\x00\x03\xe7\x00", good[1])
    decoded = source.select(
        "n", "value", from_confluent("value", registry=registry.url, subject="orders-value").alias("o")
    )
    assert decoded.schema["o"].dataType.simpleString() == (
        "struct<value:struct<id:bigint,at:timestamp,state:string,sum:decimal(9,2),tags:map<string,array<string>>,"
        "either:struct<member_string:string,member_long:bigint>>,error:string>"
    )
    found = [row.asDict(recursive=True) for row in decoded.orderBy("n").select("o.value", "o.error").collect()]
    naive = AT.replace(tzinfo=None)
    assert [row["error"] for row in found] == [
        None,
        None,
        f"schema {number}: the Avro record ends too early",
        "magic byte 106, not 0: this is not the Confluent wire format",
        f"schema 999: the registry at {registry.url} does not know this id: Schema 999 not found (40403)",
        None,
    ]
    assert [row["value"] and row["value"]["id"] for row in found] == [1, None, None, None, None, 2]
    value = found[0]["value"]
    assert value["tags"] == {"a": ["x", None]} and value["either"] == {"member_string": None, "member_long": 5}
    # Whatever the driver's zone, the instant is the same.
    assert value["at"].astimezone(UTC).replace(tzinfo=None) == naive or value["at"] == naive
    # And back: the same bytes.
    again = (
        decoded.where("o.error is null")
        .orderBy("n")
        .select(to_confluent("o.value", registry=registry.url, subject="orders-value").alias("v"))
    )
    assert [row.v and bytes(row.v) for row in again.collect()] == [good[0], None, good[1]]


@pytest.mark.parametrize(
    ("format", "text", "row"),
    [
        ("json", JSON, {"id": 3, "tags": {"a": "b"}, "any": '{"x":[1]}'}),
        (
            "protobuf",
            PROTOBUF,
            {"id": 3, "big": 2**64 - 1, "sizes": {"a": 1}, "lines": [{"name": "x", "price": None}]},
        ),
    ],
)
def test_json_and_protobuf_both_ways_by_text(spark: SparkSession, format: str, text: str, row: dict[str, Any]) -> None:
    [record] = records_of(Schema(format, text, id=4), row)
    source = frame(spark, record, record[:5] + b"\xff\xff")
    decoded = source.select("n", from_confluent("value", text, format=format).alias("o")).orderBy("n")
    good, bad = decoded.collect()
    found = good.o.value.asDict(recursive=True)
    assert {name: int(found[name]) if name == "big" else found[name] for name in row} == row
    assert good.o.error is None and bad.o.value is None and bad.o.error.startswith("schema 4: ")
    again = decoded.where("o.error is null").select(
        to_confluent("o.value", text, format=format, schema_id=4).alias("v")
    )
    assert [bytes(one.v) for one in again.collect()] == [record]


def test_failfast_gives_the_value_or_fails(spark: SparkSession) -> None:
    good = records_of(Schema("json", JSON, id=4), {"id": 3})[0]
    strict = from_confluent("value", JSON, format="json", mode="failfast").alias("o")
    assert [row.id for row in frame(spark, good, None).select("n", strict).orderBy("n").select("o.id").collect()] == [
        3,
        None,
    ]
    with pytest.raises(PythonException, match=r"PayloadError: record 1 of 2 in its batch: schema 4: not JSON"):
        frame(spark, good, good[:-1]).select(strict).collect()


def test_a_registry_that_goes_away_fails_the_query_and_tells_no_secret(spark: SparkSession) -> None:
    with serve() as passing:
        passing.add("s", AVRO)
        options = {"basic.auth.user.info": "ada:geheim", "retries": "0", "timeout.ms": "2000"}
        decoded = from_confluent("value", registry=passing.url, subject="s", options=options)
        other = passing.add("s", JSON, "JSON")
    source = frame(spark, b"\x00" + other.to_bytes(4, "big") + b"{}")
    with pytest.raises(PythonException, match="RegistryError") as failed:
        source.select(decoded).collect()
    assert "geheim" not in str(failed.value)
    with pytest.raises(RegistryError, match="failed 1 times") as refused:
        from_confluent("value", registry=passing.url, subject="s", options=options)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"mode": "strict"}, "mode 'strict' is not known, use one of permissive, failfast"),
        ({"format": "xml"}, "format 'xml' is not known, use one of avro, json, protobuf"),
        ({"options": {"retries": "1"}}, "they need registry"),
        ({"registry": "http://127.0.0.1:1", "options": {"retry": "1"}}, "'retry' is not known, use one of basic.auth"),
        (
            {"schema": '{"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}'},
            "holds itself",
        ),
    ],
)
def test_what_is_asked_is_checked_before_any_job(spark: SparkSession, given: dict[str, Any], why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        from_confluent(col("value"), **{"schema": '"int"', **given})


def test_a_record_is_decoded_once_however_many_of_its_fields_are_used(spark: SparkSession) -> None:
    decoded = frame(spark, b"").withColumn("o", from_confluent("value", JSON, format="json"))
    plan = decoded.select("o.value.id", "o.value.any", "o.error").where("error is null")
    text = plan._jdf.queryExecution().executedPlan().toString()
    assert len(re.findall(r"ArrowEvalPython \[from_confluent", text)) == 1, text


def test_a_topic_is_followed_and_decoded(
    spark: SparkSession, registry: HttpRegistry, broker: Broker, tmp_path: Path
) -> None:
    """With a schema that is registered, and a record that is broken, while the query is down."""
    old = '{"type": "record", "name": "E", "fields": [{"name": "id", "type": "long"}]}'
    new = '{"type": "record", "name": "E", "fields": [{"name": "id", "type": "long"}, {"name": "s", "type": "string"}]}'
    first = registry.add("events", old)
    decoded = from_confluent("value", registry=registry.url, subject="events").alias("o")
    log = Log(broker.bootstrap_servers)
    topic = log.topic(1)
    stream = log.stream(spark, subscribe=topic, startingOffsets="earliest").load().select("offset", decoded)
    seen: list[tuple[int, int | None, str | None]] = []

    def run() -> None:
        query = (
            stream.select("offset", "o.value.id", "o.error")
            .writeStream.foreachBatch(lambda batch, _: seen.extend(tuple(row) for row in batch.collect()))
            .option("checkpointLocation", str(tmp_path / "at"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(200)

    log.produce(topic, [{"value": value} for value in records_of(Schema("avro", old, id=first), {"id": 1})])
    run()
    second = registry.add("events", new)
    more = records_of(Schema("avro", new, id=second), {"id": 2, "s": "x"})
    log.produce(topic, [{"value": value} for value in (*more, more[0][:-1], None)])
    run()
    assert seen == [
        (0, 1, None),
        (1, 2, None),
        (2, None, f"schema {second}: the Avro record ends too early"),
        (3, None, None),
    ]


def test_the_page_of_the_docs_runs(
    spark: SparkSession, registry: HttpRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    from decimal import Decimal

    number = registry.add("orders-value", AVRO)
    row = {"id": 41, "at": AT, "state": "NEW", "sum": Decimal("1.00"), "tags": [], "either": None}
    records = records_of(Schema("avro", AVRO, id=number), row)
    frame(spark, *records, b"broken").selectExpr("binary(string(n)) as key", "value").createOrReplaceTempView("records")
    simple = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
    frame(spark, *records_of(Schema("avro", simple, id=1), {"id": 42})).createOrReplaceTempView("plain")
    page = (Path(__file__).parents[2] / "docs" / "spark-payloads.md").read_text()
    names: dict[str, Any] = {"spark": spark, "url": registry.url, "to_confluent": to_confluent}
    names["from_confluent"] = from_confluent
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
    shown = capsys.readouterr().out
    assert "|41|" in shown.replace(" ", "") and "|42|" in shown.replace(" ", "")
    assert "magic byte 98" in shown and "[00 00 00 00" in shown
