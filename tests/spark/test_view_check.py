"""`check` of views: what the log comes to is what the table holds, and what is not so is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from confluent_kafka import Producer

from tests.spark.check_rig import World, produce, tamper, with_other, without
from tidelog.spark.pipeline.kinds.view import View
from tidelog.spark.pipeline.proof import Proof
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)

FLOWS = """\
  events:
    kind: ingest
    topics: events
    decode: {wire: json, schema: "id BIGINT, n BIGINT"}
  last: {kind: view, from: events, buckets: 2, history: true}
  sums: {kind: view, from: events, buckets: 2, key: payload.id, fold: {total: sum(payload.n), mean: avg(payload.n)}}
"""


def proved(world: World, flow: str) -> Proof:
    found = world.check(flow)
    assert isinstance(found, Proof)
    return found


def test_a_view_is_proved_by_the_log(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("events")
    values: list[dict[str, Any]] = [{"id": n % 7, "n": n} for n in range(30)]
    produce(broker, "events", values)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("events", None, key="3", partition=0)
    producer.produce("events", '{"id": 9, "n": 9}', partition=0)
    assert producer.flush(60) == 0
    world = World(spark, broker, tmp_path, FLOWS)
    for flow in ("last", "sums"):
        world.land(flow, {"events": 32})
    _the_last_values(world)
    _the_fold(world)


def _the_last_values(world: World) -> None:
    """That one is balanced which was not tampered with is seen in test_view_node.py."""
    flow = world.pipeline.flows["last"]
    assert isinstance(flow, View) and flow.changes is not None
    tamper(flow.table, with_other("n", 29, 28))
    tamper(flow.changes, without("n", 5))
    proof = proved(world, "last")
    assert proof.verdict == "off"
    counts = {"expected": 6, "rows": 6, "missing": 1, "surplus": 1, "changes": 30, "changes missing": 1}
    assert proof.counts == {
        **counts, "changes surplus": 0, "unapplied": 1, "unapplied missing": 0, "unapplied surplus": 0
    }  # fmt: skip
    assert '"n":29' in proof.examples[0]


def _the_fold(world: World) -> None:
    assert proved(world, "sums").balanced
    tamper(world.pipeline.flows["sums"].table, with_other("mean", 9.0, 9.1))
    proof = proved(world, "sums")
    assert (proof.verdict, proof.counts["wrong"]) == ("off", 1)
