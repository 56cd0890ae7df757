"""A flow with dead letters on a real node: killed at each point, flooded with poison, waiting over restarts, redriven.

Killed here means that the batch fails at that point and its query is started anew from the checkpoint, with all that a
process keeps in memory gone; test_kill_outlets.py does it to processes.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from confluent_kafka import Producer

from tests.spark.letter_rig import Rig
from tidelog.cli.main import main
from tidelog.spark.pipeline.batch_state import StateError
from tidelog.spark.pipeline.letters import headers as H
from tidelog.spark.pipeline.letters.sink import LetterSink
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

FLOOD = """\
name: shop
bootstrap.servers: {servers}
lake: lake
defaults:
  restart: {{first: 100ms, most: 200ms, give_up_after: 50}}
flows:
  orders:
    kind: ingest
    topics: flood
    decode: {{wire: json, schema: "id BIGINT, amount BIGINT"}}
    dead_letters:
      topic: flood.dead
      rules: {{positive: "payload.amount > 0"}}
      retry:
        topic: flood.retry
        rules: {{lucky: "rand() < 0.5"}}   # asked again, it would answer otherwise
        delays: [10s]
"""
RECORDS = 2000


class Killed(Exception):
    pass


def flood(rig: Rig) -> dict[tuple[int, int], str]:
    """Half of it is poison. What each record must become, by partition and offset."""
    producer = Producer({"bootstrap.servers": rig.servers, "linger.ms": 20})
    expected: dict[tuple[int, int], str] = {}
    fates = {b"x": "decode", b"-": "positive", b"+": "maybe"}

    def delivered(error: object, message: Any) -> None:
        assert error is None, error
        expected[message.partition(), message.offset()] = fates[message.key()[:1]]

    for n in range(RECORDS):
        kind = (b"x", b"+", b"-", b"+")[n % 4]
        value = b"{broken" if kind == b"x" else json.dumps({"id": n, "amount": 1 if kind == b"+" else -1}).encode()
        producer.produce("flood", value, key=kind + b"%d" % n, partition=n % 2, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    return expected


def places(rig: Rig, topic: str) -> Counter[tuple[str, int, int, str]]:
    found: Counter[tuple[str, int, int, str]] = Counter()
    for _, letter in rig.letters(topic):
        assert letter.origin is not None
        found[(*letter.origin, letter.text(H.REASON))] += 1
    return found


def test_a_flood_of_poison_through_every_kill_is_divided_once(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(broker, tmp_path, FLOOD)
    broker.create_topic("flood", partitions=2)
    expected = flood(rig)
    left = ["judged", "decided", "sent", "landed"]

    def kill(point: str) -> None:
        if left and point == left[0]:
            left.pop(0)
            raise Killed(point)

    monkeypatch.setattr(LetterSink, "step", staticmethod(kill))
    assert rig.runner(spark, once=True).run() == 0, rig.told
    assert not left

    rows = [(row["topic"], row["partition"], row["offset"]) for row in rig.rows()]
    dead, retries = places(rig, "flood.dead"), places(rig, "flood.retry")
    assert max(Counter(rows).values()) == max(dead.values()) == max(retries.values()) == 1
    poison = {("flood", *place, fate) for place, fate in expected.items() if fate != "maybe"}
    assert set(dead) == poison
    assert len(poison) == RECORDS // 2
    hoped = {("flood", *place) for place, fate in expected.items() if fate == "maybe"}
    assert {place[:3] for place in retries} | set(rows) == hoped
    assert not {place[:3] for place in retries} & set(rows)
    assert rig.balance() == {"lake": len(rows), "dead letters": RECORDS // 2, "retrying": len(retries)}
    state = rig.state()
    assert state is not None
    assert (state.dead, state.retrying) == ({"decode": RECORDS // 4, "positive": RECORDS // 4}, len(retries))

    # Their time has come; the batch is done but for Spark's own commit, and nobody starts the flow again.
    def kill_always(point: str) -> None:
        if point == "landed":
            raise StateError(point)  # which no restart would mend: one start is enough here

    rig.clock.move(10_000)
    monkeypatch.setattr(LetterSink, "step", staticmethod(kill_always))
    assert rig.runner(spark, once=True).run() == 1
    after = rig.balance()
    assert after["retrying"] == 0
    assert after["lake"] > len(rows)
    monkeypatch.setattr(LetterSink, "step", staticmethod(lambda point: None))
    assert rig.runner(spark, once=True).run() == 0
    assert rig.balance() == after
    unlucky = {place[:3] for place in places(rig, "flood.dead") if place[3] == "lucky"}
    landed = {(row["topic"], row["partition"], row["offset"]) for row in rig.rows()}
    assert len(rig.rows()) == len(landed)
    assert landed | unlucky == hoped
    assert not landed & unlucky


SHOP = """\
name: shop
bootstrap.servers: {servers}
lake: lake
defaults:
  trigger: 100ms
  restart: {{first: 1s, most: 2s, give_up_after: 50}}
flows:
  customers:
    kind: ingest
    topics: customers
    decode: {{wire: json, schema: "name STRING"}}
  orders:
    kind: ingest
    topics: orders
    headers: true
    decode: {{wire: json, schema: "id BIGINT, amount BIGINT, customer STRING"}}
    dead_letters:
      topic: orders.dead
      rules: {{positive: "payload.amount > 0"}}
      retry:
        topic: orders.retry
        rules: {{known: "EXISTS (SELECT 1 FROM customers c WHERE c.payload.name = orders.payload.customer)"}}
        lookups: [customers]
        delays: [10s, 1m]
"""


def order(number: int, customer: str, amount: int = 1) -> dict[str, Any]:
    return {"id": number, "amount": amount, "customer": customer}


def test_waiting_records_outlive_a_restart_wake_a_silent_flow_and_come_back_from_the_dead(
    spark: SparkSession, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = Rig(broker, tmp_path, SHOP)
    broker.create_topic("customers")
    broker.create_topic("orders")
    rig.produce("customers", [{"name": "alice"}])

    def customers(number: int) -> bool:
        state = rig.state("customers")
        return state is not None and state.rows == number

    def is_so(dead: dict[str, int], retrying: int, rows: int) -> bool:
        state = rig.state()
        return state is not None and (state.dead, state.retrying, state.rows) == (dead, retrying, rows)

    def tried(number: int, attempt: int) -> bool:
        """The letter of the attempt was taken in: it waits."""
        attempts = [letter.number(H.ATTEMPT) for _, letter in rig.letters("orders.retry")]
        return len(attempts) == number and attempts[-1] == attempt

    poison = {"decode": 1, "positive": 2}
    with rig.running(spark):
        rig.until(lambda: customers(1))
        rig.produce("orders", [order(0, "alice"), b"{broken", order(2, "alice", -1), None])
        rig.produce("orders", [order(4, "bob")], key="bob", headers=[("trace", b"t1")])
        rig.until(lambda: is_so(poison, 1, 1))
        rig.settles(lake=1, dead_letters=3, retrying=1)

    rig.clock.move(10_000)  # it comes due while nobody runs, and nothing new is in the topics
    with rig.running(spark):
        rig.until(lambda: tried(2, 2))
        rig.settles(lake=1, dead_letters=3, retrying=1)
        rig.produce("customers", [{"name": "bob"}])
        rig.until(lambda: customers(1))
        rig.until(lambda: is_so(poison, 1, 0))
        rig.clock.move(60_000)  # and now while the flow runs and has nothing to read
        rig.until(lambda: is_so(poison, 0, 1))
        rig.settles(lake=2, dead_letters=3, retrying=0)

        rig.produce("orders", [order(5, "carol")], key="carol")
        for number, delay_ms in ((3, 10_000), (4, 60_000)):
            rig.until(lambda number=number: tried(number, number - 2) and is_so(poison, 1, 1))  # type: ignore[misc]
            rig.clock.move(delay_ms)
        rig.until(lambda: is_so(poison | {"known": 1}, 0, 1))
        rig.produce("customers", [{"name": "carol"}])
        rig.until(lambda: customers(2))
        command = ["pipeline", "redrive", str(rig.file), "orders", "--reason", "known"]
        assert main(command) == 0
        assert "1 of 4 letters were sent back\n  known: 1" in capsys.readouterr().out
        rig.until(lambda: is_so(poison | {"known": 1}, 0, 2))
        assert main(command) == 0
        assert "0 of 4 letters were sent back\n  1 were sent back before" in capsys.readouterr().out
        rig.settles(lake=3, dead_letters=3, retrying=0)

    landed = {row["payload"]["id"]: row for row in rig.rows()}
    assert {number: (row["topic"], row["offset"]) for number, row in landed.items()} == {
        0: ("orders", 0),
        4: ("orders", 4),
        5: ("orders", 5),
    }
    assert [dict(header) for header in landed[4]["headers"]] == [{"key": "trace", "value": b"t1"}]
    assert not landed[0]["headers"]
