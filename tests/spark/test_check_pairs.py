"""`check` of dedupes and joins: each record is in one of their columns, and one that is taken away is missed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tests.spark.check_rig import Change, World, doubled, produce, tamper, without
from tidelog.spark.audit import Report
from tidelog.spark.pipeline.checking import check
from tidelog.spark.pipeline.model import Table
from tidelog.spark.pipeline.proof import Proof
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)  # seconds alone, minutes beside others

FLOWS = """\
  orders: {kind: ingest, topics: orders, decode: {wire: json, schema: "id INT, at TIMESTAMP"}}
  payments: {kind: ingest, topics: payments, decode: {wire: json, schema: "id INT, at TIMESTAMP"}}
  some: {kind: sql, from: orders, query: SELECT * FROM orders WHERE payload.id <> 4}
  sums: {kind: sql, from: payments, query: "SELECT *, explode(array(1, 2)) AS half FROM payments WHERE payload.id <> 2"}
  once: {kind: dedupe, from: orders, by: [payload.id], time: payload.at, watermark: 4m}
  few: {kind: dedupe, from: some, by: [payload.id], time: payload.at, watermark: 4m}
  paid:
    kind: join
    left: orders
    right: payments
    on: [payload.id]
    time: payload.at
    within: {before: 5m, after: 5m}
    watermark: 3m
  halves:
    kind: join
    left: some
    right: sums
    on: [payload.id]
    time: payload.at
    within: {before: 5m, after: 5m}
    watermark: 3m
    type: full
"""


def event(number: int, minute: int) -> dict[str, Any]:
    return {"id": number, "at": f"2026-11-16T00:{minute:02d}:00Z"}


@pytest.fixture
def world(spark: SparkSession, broker: Broker, tmp_path: Path) -> World:
    """Two orders of each id, a payment for every second id, and one of each that comes too late."""
    world = World(spark, broker, tmp_path, FLOWS)
    orders = [event(n // 2, n) for n in range(20)]
    payments = [event(n, 2 * n) for n in range(0, 10, 2)]
    produce(broker, "orders", [*orders[:15], event(50, 0), *orders[15:]])
    produce(broker, "payments", [*payments[:4], event(50, 0), *payments[4:]])
    return world


def by_outlet(report: Any) -> tuple[list[int], int]:
    assert isinstance(report, Report)
    ((tally,),) = [[one.tally for one in report.partitions]]
    return list(tally.by_outlet), tally.missing


def test_each_record_is_in_one_column_and_one_that_is_taken_away_is_missing(world: World) -> None:
    for ends in ({"orders": 12, "payments": 4}, {"orders": 21, "payments": 6}):
        for flow in ("once", "few", "paid"):
            world.land(flow, ends)
    flows = world.pipeline.flows

    def looks(flow: str, table: Table | None = None, offset: int = 0) -> dict[str, Any]:
        undo = tamper(table, without("offset", offset)) if table is not None else lambda: None
        found = dict(check(world.pipeline, [flow], lambda text: None, spark=world.spark))
        undo()
        return found

    once = looks("once")["once"]
    assert by_outlet(once) == ([10, 10, 1], 0)
    assert "DUPLICATES" in once.table()
    assert by_outlet(looks("once", flows["once"].aside["duplicates"], 3)["once"]) == ([10, 9, 1], 1)

    paid = looks("paid")
    assert list(paid) == ["paid (orders)", "paid (payments)"]
    assert "WAITING" in paid["paid (orders)"].table()
    # Orders of ids 0, 2, 4, 6 and 8 are paid; of the others, those that end before 0:15 are known to be unpaid.
    assert by_outlet(paid["paid (orders)"]) == ([10, 4, 1, 6], 0)
    assert by_outlet(paid["paid (payments)"]) == ([5, 0, 1, 0], 0)
    unmatched = looks("paid", flows["paid"].aside["unmatched"], 2)
    assert by_outlet(unmatched["paid (orders)"]) == ([10, 3, 1, 6], 1)
    assert unmatched["paid (payments)"].balanced

    # Over a query, the rows that the query gives are what must be there.
    few = looks("few")["few"]
    assert isinstance(few, Proof)
    assert (few.verdict, few.counts) == ("balanced", {"expected": 19, "rows": 19, "missing": 0, "surplus": 0})
    assert looks("few", flows["few"].aside["duplicates"], 3)["few"].counts["missing"] == 1


def test_a_join_of_queries_is_computed_anew(world: World) -> None:
    """One side leaves out records, the other makes two rows of each: no record tells what its rows must come to."""
    for ends in ({"orders": 12, "payments": 4}, {"orders": 21, "payments": 6}):
        world.land("halves", ends)
    halves = world.pipeline.flows["halves"]
    balanced = {"missing": 0, "surplus": 0, "late surplus": 0}

    def look(table: Table | None = None, change: Change | None = None) -> Proof:
        undo = tamper(table, change) if table is not None and change is not None else lambda: None
        found = world.check("halves")
        undo()
        assert isinstance(found, Proof)
        return found

    # Orders of ids 0, 6 and 8 are paid: two of each, with two rows of one payment. Without a partner are those of ids
    # 1, 2 and 3, which are over by 0:13, the payments' watermark, and the two rows of payment 4. Late are an order, and
    # two rows of a payment.
    found = look()
    assert (found.verdict, found.counts) == (
        "balanced",
        {"expected": 20, "pairs": 12, "unmatched": 8, "late": 3, **balanced},
    ), found.table()
    # What a table has lost or doubled is told, and so is a late row that nobody sent.
    assert look(halves.table, doubled("right_offset", 3)).counts["surplus"] == 1
    assert look(halves.aside["unmatched"], without("offset", 2)).counts["missing"] == 1
    late = look(halves.aside["late"], doubled("offset", 15)).counts
    assert (late["late surplus"], late["missing"]) == (1, 0)
