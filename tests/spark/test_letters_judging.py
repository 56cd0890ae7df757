"""Which rows are good, dead, to be retried or not due, on frames without a stream; letters are read back as records."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("yaml")

from tidelog.spark.lake import open_table
from tidelog.spark.pipeline.kinds.ingest import Ingest, rows_of
from tidelog.spark.pipeline.kinds.kind import PlanError
from tidelog.spark.pipeline.letters import headers as H
from tidelog.spark.pipeline.letters.judging import arrived, check_rules, letters_of, unbroken
from tidelog.spark.pipeline.letters.lookups import Lookups
from tidelog.spark.pipeline.letters.sink import judge
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.model import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = """key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int,
headers array<struct<key string, value binary>>"""
TEXT = """\
name: shop
bootstrap.servers: 127.0.0.1:1
lake: lake
defaults: {format: parquet}
flows:
  customers: {kind: ingest, topics: customers}
  orders:
    kind: ingest
    topics: orders
    decode: {wire: json, schema: "amount STRING, customer STRING"}
    dead_letters:
      topic: dead
      rules: {number: "CAST(payload.amount AS INT) IS NOT NULL", positive: "payload.amount > 0"}
      retry:
        rules: {known: "EXISTS (SELECT 1 FROM customers c WHERE c.name = orders.payload.customer)"}
        lookups: [customers]
        delays: [10s, 1m]
"""
NOW = 1_790_000_000_000
TIME = datetime(2020, 1, 2, 3, 4, 5, 678_000, UTC)
Headers = list[tuple[str, bytes | None]] | None


def record(offset: int, value: bytes | None, headers: Headers = None, topic: str = "orders") -> tuple[Any, ...]:
    return (b"k", value, topic, 1, offset, TIME, 1, headers)


def order(amount: object, customer: str = "alice") -> bytes:
    return f'{{"amount": "{amount}", "customer": "{customer}"}}'.encode()


def pipeline_of(home: Path) -> tuple[Pipeline, Ingest]:
    pipeline = load_text(TEXT, home, "shop.yaml", {})
    flow = pipeline.flows["orders"]
    assert isinstance(flow, Ingest)
    return pipeline, flow


def outcomes(
    spark: SparkSession, home: Path, records: list[tuple[Any, ...]], now_ms: int = NOW, known: str | None = None
) -> tuple[dict[int, tuple[Any, ...]], DataFrame]:
    """`known`: the condition of that name, instead of the one that asks a table, which takes longer."""
    pipeline, flow = pipeline_of(home)
    letters = flow.dead_letters
    assert letters is not None
    if known is not None:
        letters = replace(letters, retry_rules=(("known", known),), lookups=())
        flow = replace(flow, dead_letters=letters)
    rows = arrived(spark.createDataFrame(records, SCHEMA), letters, "orders", "q")
    found = judge(flow, rows, Lookups(pipeline, letters), now_ms)
    shown = {row["offset"]: (row["_outcome"], row["_reason"]) for row in found.collect()}
    return shown, found


def add_customer(spark: SparkSession, home: Path, name: str, batch: int) -> None:
    frame = spark.sql(f"SELECT '{name}' AS name, DATE'2026-01-01' AS event_date")
    (home / "lake").mkdir(exist_ok=True)
    open_table(str(home / "lake" / "customers"), "parquet").append(frame, query="test", batch=batch)


def test_every_record_has_one_outcome(spark: SparkSession, tmp_path: Path) -> None:
    records = [
        record(0, order(5)),
        record(1, b"{broken"),
        record(2, order(-5)),
        record(3, order("five")),  # an error with ANSI, which would stop the query
        record(4, None),
        record(5, order(5, "bob")),
        record(6, order(5, ""), [("own", b"h")]),
    ]
    # As long as there is no table to ask, nobody is known.
    shown, _ = outcomes(spark, tmp_path, records)
    assert shown[0] == ("retry", "known")
    add_customer(spark, tmp_path, "alice", 0)
    shown, _ = outcomes(spark, tmp_path, records)
    assert shown == {
        0: ("good", None),
        1: ("dead", "decode"),
        2: ("dead", "positive"),
        3: ("dead", "number"),
        4: ("dead", "number"),
        5: ("retry", "known"),
        6: ("retry", "known"),
    }
    # Strangers in the retry topic: one dies, those of other flows and checkpoints are left out, and so is a wake.
    other = H.block([(H.TOPIC, "orders"), (H.PARTITION, 0), (H.OFFSET, 1), (H.FLOW, "orders"), (H.QUERY, "before")])
    strangers = [
        record(7, order(5), topic="dead.retry"),
        record(8, order(5), other, topic="dead.retry"),
        record(9, None, H.block([(H.WAKE, 1)]), topic="dead.retry"),
        record(10, order(5), [*other, *other, (H.MARK, b"\xff"), (H.OFFSET, b"nine")], topic="dead.retry"),
    ]
    shown, _ = outcomes(spark, tmp_path, strangers)
    assert shown == {7: ("dead", "foreign")}


def test_a_letter_is_read_back_as_the_record_that_it_was(spark: SparkSession, tmp_path: Path) -> None:
    nobody = "payload.customer IS NULL"
    own: Headers = [("own", b"h"), (H.ATTEMPT, b"9"), ("none", None)]
    _, flow = pipeline_of(tmp_path)
    assert flow.dead_letters is not None
    _, judged = outcomes(spark, tmp_path, [record(5, order(5, "bob"), own)], known=nobody)
    for attempt, delay_ms in ((1, 10_000), (2, 60_000)):
        (sent,) = letters_of(judged, flow.dead_letters, "orders", "q", 3).collect()
        assert (sent["topic"], sent["key"], sent["value"]) == ("dead.retry", b"k", order(5, "bob"))
        assert sent["timestamp"].astimezone(UTC) == TIME
        pairs = [(header["key"], header["value"]) for header in sent["headers"]]
        assert pairs[:3] == own
        said = dict(pairs[3:])
        assert (said[H.ATTEMPT], said[H.NOT_BEFORE]) == (b"%d" % attempt, b"%d" % (NOW + delay_ms))
        assert (said[H.REASON], said[H.STAGE], said[H.BATCH]) == (b"known", b"TRANSFORMATION", b"3")
        back = [(b"k", sent["value"], "dead.retry", 0, 99, datetime.now(UTC), 0, pairs)]
        shown, _ = outcomes(spark, tmp_path, back, NOW + delay_ms - 1, nobody)
        assert shown == {5: ("waiting", None)}
        _, judged = outcomes(spark, tmp_path, back, NOW + delay_ms, nobody)
        (row,) = judged.collect()
        assert (row["topic"], row["partition"], row["offset"], row["timestampType"]) == ("orders", 1, 5, 1)
        assert row["timestamp"].astimezone(UTC) == TIME
        assert [(header["key"], header["value"]) for header in row["headers"]] == own
        judged = judged.withColumn("_at", judged["_at"] * 0 + NOW)
    # The last attempt is over: it is dead now, and says how often it was tried.
    (dead,) = letters_of(judged, flow.dead_letters, "orders", "q", 4).collect()
    said = {header["key"]: header["value"] for header in dead["headers"][3:]}
    assert (dead["topic"], said[H.ATTEMPT], H.NOT_BEFORE in said) == ("dead", b"2", False)
    shown, _ = outcomes(spark, tmp_path, back, NOW + 60_000, "payload.customer = 'bob'")
    assert shown == {5: ("good", None)}


def test_other_flows_get_what_can_be_decoded_and_breaks_no_rule(spark: SparkSession, tmp_path: Path) -> None:
    _, flow = pipeline_of(tmp_path)
    assert flow.dead_letters is not None
    values = [order(5, "unknown"), b"{broken", order(-5), order("five"), None]
    frame = spark.createDataFrame([record(n, value) for n, value in enumerate(values)], SCHEMA)
    kept = unbroken(rows_of(frame, flow), flow.dead_letters, decodes=True)
    assert [row["offset"] for row in kept.collect()] == [0]
    with pytest.raises(PlanError, match=r"the rule 'wrong': .*UNRESOLVED_COLUMN.*nothing"):
        check_rules(kept, replace(flow.dead_letters, rules=(("wrong", "payload.amount > nothing"),)))


def test_without_retries_there_is_only_poison(spark: SparkSession, tmp_path: Path) -> None:
    pipeline, flow = pipeline_of(tmp_path)
    assert flow.dead_letters is not None
    bare = replace(flow, dead_letters=replace(flow.dead_letters, retry_rules=(), delays_ms=(), lookups=()))
    assert bare.dead_letters is not None
    rows = arrived(
        spark.createDataFrame([record(0, order(1)), record(1, order(0))], SCHEMA), bare.dead_letters, "o", "q"
    )
    found = judge(bare, rows, Lookups(pipeline, bare.dead_letters), NOW)
    assert sorted((row["offset"], row["_outcome"]) for row in found.collect()) == [(0, "good"), (1, "dead")]
