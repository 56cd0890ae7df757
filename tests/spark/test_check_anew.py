"""Flows whose rows have no coordinates are proved by computing them anew; what is planted in their tables is named, and
what cannot be proved is unknown."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tests.spark.audit_rig import delete_before, delete_topic
from tests.spark.check_rig import Change, World, doubled, produce, tamper, with_other, without
from tidelog.spark.audit import Report
from tidelog.spark.pipeline import recomputing
from tidelog.spark.pipeline.checking import Finding
from tidelog.spark.pipeline.kinds.aggregate import Aggregate
from tidelog.spark.pipeline.model import Table
from tidelog.spark.pipeline.proof import Proof
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)  # seconds alone, minutes beside others

FLOWS = {
    "orders": """\
  orders:
    kind: ingest
    topics: TOPIC
    decode: {wire: json, schema: "id BIGINT, at TIMESTAMP, tags MAP<STRING, STRING>"}
""",
    "payments": """\
  payments: {kind: ingest, topics: TOPIC-paid, decode: {wire: json, schema: "id BIGINT, paid DOUBLE"}}
""",
    "even": """\
  even:
    kind: sql
    from: orders
    query: SELECT payload.id, payload.tags, payload.at FROM orders WHERE payload.id % 2 = 0
""",
    "placed": """\
  placed: {kind: sql, from: orders, query: "SELECT topic, partition, offset, payload.id FROM orders"}
""",
    "paid": """\
  paid:
    kind: sql
    from: [orders, payments]
    query: SELECT o.payload.id, p.payload.paid FROM orders o JOIN payments p ON o.payload.id = p.payload.id
""",
    "minutes": """\
  minutes:
    kind: aggregate
    from: orders
    time: payload.at
    watermark: 1m
    window: {tumbling: 1m}
    by: {parity: payload.id % 2}
    measures: {number: count, mean: avg(payload.id / 3), closing: last(payload.id), kinds: count_distinct(key)}
""",
    "visits": """\
  visits:
    kind: aggregate
    from: orders
    time: payload.at
    watermark: 0s
    window: {session: 30s}
    by: {parity: payload.id % 2}
    measures: {number: count}
""",
    "even_only": """\
  even_only:
    kind: ingest
    topics: TOPIC
    decode: {wire: json, schema: "id BIGINT, at TIMESTAMP"}
    dead_letters: {topic: TOPIC-dead, rules: {even: payload.id % 2 = 0}}
""",
    "once": """\
  once: {kind: dedupe, from: even_only, by: [payload.id], time: payload.at, watermark: 1h}
""",
    "stamped": """\
  stamped: {kind: sql, from: orders, query: "SELECT payload.id, current_timestamp() AS at FROM orders"}
""",
    "drawn": """\
  drawn: {kind: sql, from: orders, query: "SELECT payload.id, rand() AS lot FROM orders"}
""",
    "some": """\
  some: {kind: sql, from: orders, query: "SELECT payload.id FROM orders LIMIT 3"}
""",
}


def flows(topic: str, *names: str) -> str:
    return "".join(FLOWS[name] for name in names).replace("TOPIC", topic)


def order(number: int, second: int | None) -> dict[str, Any]:
    at = None if second is None else f"2026-11-16T10:{second // 60:02d}:{second % 60:02d}Z"
    return {"id": number, "at": at, "tags": {"a": str(number), "b": None}}


def proof_of(finding: Finding) -> Proof:
    assert isinstance(finding, Proof)
    return finding


@pytest.fixture(scope="module")
def world(spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two batches: thirty records of three minutes; then two that come late, one without a time, and ten that close
    what is open."""
    topic = broker.create_topic()
    paid = broker.create_topic(f"{topic}-paid")
    names = ("orders", "payments", "even", "placed", "paid", "minutes", "stamped", "drawn", "some")
    world = World(spark, broker, tmp_path_factory.mktemp("check"), flows(topic, *names))
    produce(broker, topic, [order(n, n * 6) for n in range(30)])
    produce(broker, topic, [order(30, 3), order(31, 4), order(32, None), *(order(n, n * 9) for n in range(33, 43))])
    produce(broker, paid, [{"id": n, "paid": n / 7} for n in range(0, 43, 5)])
    for flow in ("even", "minutes"):
        world.land(flow, {topic: 30})
        world.land(flow, {topic: 43})
    world.land("placed", {topic: 43})
    world.land("paid", {topic: 43, paid: 9})
    return world


def test_what_a_flow_has_landed_is_what_the_log_gives(world: World) -> None:
    found = {flow: proof_of(world.check(flow)) for flow in ("even", "placed", "paid", "minutes")}
    assert {flow: one.verdict for flow, one in found.items()} == dict.fromkeys(found, "balanced"), {
        flow: one.table() for flow, one in found.items()
    }
    assert dict(found["even"].counts) == {"expected": 22, "rows": 22, "missing": 0, "surplus": 0}
    assert dict(found["paid"].counts)["rows"] == 9
    assert found["minutes"].counts["late"] == 3
    assert found["minutes"].counts["windows"] == found["minutes"].counts["expected"] > 6
    assert "balanced: the table is what the log gives" in found["even"].table()


def test_what_is_planted_in_a_table_is_named(world: World) -> None:
    even, minutes = world.pipeline.flows["even"], world.pipeline.flows["minutes"]
    assert isinstance(minutes, Aggregate)
    paid = world.pipeline.flows["paid"]
    plants: list[tuple[str, list[tuple[Table, Change]], dict[str, int], list[str]]] = [
        (
            "even",
            [(even.table, one) for one in (without("id", 8), doubled("id", 10), with_other("id", 12, None))],
            {"missing": 2, "surplus": 2},
            ['missing: {"at":"2026-11-16T10:00:48', '"id":12', '"id":10', '"id":null'],
        ),
        ("paid", [(paid.table, without("id", 10))], {"missing": 1}, ['"id":10']),
        (
            "minutes",
            [
                (minutes.table, one)
                for one in (with_other("closing", 8, 6), without("closing", 19), doubled("closing", 28))
            ],
            {"missing": 1, "wrong": 1, "surplus": 1},
            ['"closing":8,', 'found {"number":5,"mean":1.3333333333333333,"closing":6', "missing: {", "surplus: {"],
        ),
        (
            "minutes",
            [(minutes.late, doubled("offset", 31)), (minutes.late, without("offset", 30))],
            {"wrong": 1, "late surplus": 1},
            ['expected {"number":6', 'found {"number":5'],
        ),
    ]
    for flow, changes, faults, named in plants:
        undo = [tamper(table, change) for table, change in changes]
        found = proof_of(world.check(flow))
        for back in reversed(undo):
            back()
        wrong = {name: found.counts[name] for name in found.faults if found.counts[name]}
        assert (found.verdict, wrong) == ("off", faults), found.table()
        assert not [text for text in named if text not in found.table()], found.table()
        assert found.fails(strict=False)
    assert world.check("even").balanced and world.check("minutes").balanced


def test_a_batch_that_is_not_committed_yet_belongs_to_its_table(world: World) -> None:
    """A flow that runs: the table has a batch more than the checkpoint has committed."""
    commit = world.pipeline.work / "checkpoints" / "even" / "commits" / "1"
    content = commit.read_bytes()
    commit.unlink()
    assert world.check("even").balanced
    # Of two tables nobody knows whether both have it.
    other = world.pipeline.work / "checkpoints" / "minutes" / "commits" / "1"
    moved = other.rename(other.with_name("moved"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recomputing, "PAUSE_S", 0.001)
        assert "in the middle of a batch" in world.check("minutes").summary()
    moved.rename(other)
    commit.write_bytes(content)


def test_what_cannot_be_repeated_is_unknown(world: World) -> None:
    for flow in ("stamped", "drawn", "some"):
        assert "it has not finished a batch yet" in world.check(flow).summary()
        shutil.copytree(world.pipeline.work / "checkpoints" / "even", world.pipeline.work / "checkpoints" / flow)
    for flow, reason in {"stamped": "current_timestamp()", "drawn": "rand()", "some": "GlobalLimit"}.items():
        found = proof_of(world.check(flow))
        assert found.verdict == "unknown" and not found.balanced
        assert reason in found.summary(), found.summary()
        assert found.fails(strict=True) and not found.fails(strict=False)


def test_rows_that_another_definition_made_are_unknown(world: World) -> None:
    (topic,) = [flow.topics[0] for flow in world.pipeline.flows.values() if flow.name == "orders"]  # type: ignore[attr-defined]
    text = flows(topic, "orders", "even", "placed").replace("% 2 = 0", "% 2 = 1")
    text = text.replace("offset, payload.id FROM", "offset, payload.id + 0 AS id FROM")
    changed = World(world.spark, world.broker, world.home, text)
    found = proof_of(changed.check("even"))
    assert found.verdict == "unknown" and "was changed since its first batch" in found.summary()
    assert changed.check("placed").balanced, "what gives the same rows all the same is proved"


def test_records_that_are_gone(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Rows with coordinates are judged as far as the log reaches; of others only what is missing can be told."""
    topic = broker.create_topic()
    world = World(spark, broker, tmp_path, flows(topic, "orders", "even", "placed", "minutes"))
    produce(broker, topic, [order(n, n * 6) for n in range(30)])
    for flow in ("even", "placed", "minutes"):
        world.land(flow, {topic: 30})
    delete_before(broker.bootstrap_servers, topic, 0, 10)
    placed = proof_of(world.check("placed"))
    assert placed.verdict == "balanced" and "not judged: 10 rows" in placed.table(), placed.table()
    for flow in ("even", "minutes"):
        found = proof_of(world.check(flow))
        assert found.verdict == "unknown" and f"{topic}-0 begins at 10" in found.summary(), found.table()
    tamper(world.pipeline.flows["even"].table, without("id", 20))
    found = proof_of(world.check("even"))
    assert found.verdict == "off" and found.counts["missing"] == 1 and '"id":20' in found.table(), found.table()
    delete_topic(broker.bootstrap_servers, topic)
    assert f"the log has no topic {topic} any more" in world.check("even").summary()


def test_sessions(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic()
    world = World(spark, broker, tmp_path, flows(topic, "orders", "visits"))
    produce(broker, topic, [order(0, 0), order(2, 10), order(1, 45), order(8, 300), order(9, 335)])
    world.land("visits", {topic: 5})
    found = proof_of(world.check("visits"))
    assert found.verdict == "balanced" and found.counts["windows"] == 3, found.table()
    # A row that is not late itself touches a session that was closed before it came: the table has two sessions which
    # are one when all rows are seen at once.
    produce(broker, topic, [order(10, 310), order(12, 500)])
    world.land("visits", {topic: 6})
    world.land("visits", {topic: 7})
    found = proof_of(world.check("visits"))
    assert found.verdict == "unknown" and "came after its session was closed" in found.summary(), found.table()


def test_a_flow_owes_nothing_of_what_the_ingest_flow_keeps_as_dead_letters(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.create_topic()
    world = World(spark, broker, tmp_path, flows(topic, "even_only", "once"))
    produce(broker, topic, [order(n, n) for n in (*range(10), 2, 4)])
    world.land("once", {topic: 12})
    report = world.check("once")
    assert isinstance(report, Report) and report.balanced, report.table()
    assert report.landed() == {"lake": 5, "duplicates": 2, "late": 0, "broken": 5}
    tamper(world.pipeline.flows["once"].table, without("offset", 6))
    assert f"{topic}-0: 6 missing (1)" in world.check("once").table()
