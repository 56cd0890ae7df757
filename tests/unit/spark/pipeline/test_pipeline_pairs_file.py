"""dedupe and join in the file of a pipeline: what they become, and what is said of ones that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("yaml")

from tidelog.spark.pipeline import Pipeline, PipelineError, dedupe, ingest, join
from tidelog.spark.pipeline.kinds.dedupe import Dedupe
from tidelog.spark.pipeline.kinds.join import Interval, Join, Lookup
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.model import Table

BASE = Path("/somewhere")
HEAD = """\
name: shop
bootstrap.servers: 127.0.0.1:9092
lake: ./lake
flows:
  orders: {kind: ingest, topics: [orders]}
  payments: {kind: ingest, topics: [payments]}
"""


def parse(flows: str) -> Pipeline:
    return load_text(HEAD + flows, BASE, "shop.yaml", {})


def errors(flows: str) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        parse(flows)
    return [str(fault) for fault in caught.value.faults]


def test_a_dedupe_has_tables_beside_its_own() -> None:
    flow = parse(
        """\
  once:
    kind: dedupe
    from: orders
    by: [payload.id]
    watermark: 1h
    duplicates: again
"""
    ).flows["once"]
    assert isinstance(flow, Dedupe)
    assert (flow.reads, flow.by, flow.time, flow.watermark_ms) == (
        "orders",
        (("id", "payload.id"),),
        "timestamp",
        3_600_000,
    )
    assert [(name, table.path) for name, table in flow.aside.items()] == [
        ("duplicates", "/somewhere/lake/again"),
        ("late", "/somewhere/lake/once_late"),
    ]


def test_a_join_of_two_streams() -> None:
    flow = parse(
        """\
  paid:
    kind: join
    left: orders
    right: payments
    on: {payload.id: payload.order_id, payload.shop: payload.shop}
    within: {after: 15m}
    time: {left: payload.at}
    watermark: 1m
    type: left
    unmatched: unpaid
"""
    ).flows["paid"]
    assert isinstance(flow, Join)
    assert flow.inputs == ("orders", "payments")
    assert flow.on == (("payload.id", "payload.order_id"), ("payload.shop", "payload.shop"))
    assert flow.interval == Interval(
        times={"left": "payload.at", "right": "timestamp"},
        before_ms=0,
        after_ms=900_000,
        watermark_ms=60_000,
        watermark_of="slowest",
    )
    assert [flow.keeps_unmatched(side) for side in ("left", "right")] == [True, False]
    assert [table.path for table in flow.tables] == [
        f"/somewhere/lake/{name}" for name in ("paid", "unpaid", "paid_late")
    ]


@pytest.mark.parametrize(
    ("right", "lookup"),
    [
        ("{table: payments}", Lookup(flow="payments")),
        (
            "{path: old/payments, format: parquet}",
            Lookup(table=Table(path="/somewhere/lake/old/payments", format="parquet")),
        ),
    ],
)
def test_a_join_with_a_table(right: str, lookup: Lookup) -> None:
    flow = parse(f"  named: {{kind: join, left: orders, right: {right}, on: [id]}}\n").flows["named"]
    assert isinstance(flow, Join)
    assert (flow.inputs, flow.right, flow.on, flow.type) == (("orders",), lookup, (("id", "id"),), "left")
    assert flow.tables == (flow.table,)


def test_what_is_wrong_is_told_by_line_key_and_what_is_allowed() -> None:
    assert errors(
        """\
  once:
    kind: dedupe
    by: [lower(payload.id)]
    watermark: soon
    duplicate: again
  paid:
    kind: join
    left: order
    right: payments
    on: {payload.id: payload.order_id}
    within: {later: 1m}
    type: outer
  own:
    kind: join
    left: orders
    right: {table: own, format: delta}
    on: [id]
    within: {after: 1m}
    type: inner
  twice:
    kind: join
    left: orders
    right: orders
    on: [id]
    within: {after: 1m}
    watermark: 1m
  reads:
    kind: sql
    from: once
    query: SELECT * FROM once
"""
    ) == [
        "line 7: flows.once: the key 'from' is missing, such as from: orders",
        "line 9: flows.once.by: 'lower(payload.id)' needs a name: write by: {NAME: lower(payload.id)}",
        "line 10: flows.once.watermark: 'soon' is no duration; write a number with a unit (ms, s, m, h, d), such as "
        "500ms, 10s or 1h30m",
        "line 11: flows.once.duplicate: there is no such key; did you mean 'duplicates'? allowed: kind, format, "
        "trigger, maintenance, restart, table, from, by, time, watermark, duplicates, late",
        "line 12: flows.paid: the key 'watermark' is missing, such as watermark: 10m",
        "line 14: flows.paid.left: there is no flow 'order'; did you mean 'orders'? allowed: orders, payments, reads",
        "line 17: flows.paid.within: needs 'before' or 'after', or both: how far the right row's time may lie from the "
        "left one's",
        "line 17: flows.paid.within.later: there is no such key; did you mean 'after'? allowed: before, after",
        "line 18: flows.paid.type: 'outer' is not one of its values; allowed: inner, left, right, full",
        "line 22: flows.own.right.format: there is no such key; allowed: table, path",
        "line 22: flows.own.right.table: there is no other flow 'own' with a table; allowed: orders, payments, once, "
        "paid, twice, reads",
        "line 24: flows.own.within: there is no such key; allowed: kind, format, trigger, maintenance, restart, table, "
        "right, on, left, type",
        "line 25: flows.own.type: 'inner' is not one of its values; allowed: left",
        "line 29: flows.twice.right: is the left side too; make two flows of it, such as two sql flows",
        "line 35: flows.reads.from: 'once' is a dedupe: which rows are first is decided batch by batch with a state of "
        "its own, and another query's batches would decide otherwise; read what it reads; allowed: orders, payments",
    ]


def test_python_says_the_same() -> None:
    pipeline = Pipeline.of(
        name="shop",
        bootstrap_servers="h:1",
        lake="/somewhere/lake",
        work="/somewhere/.tidelog/shop",
        flows={
            "orders": ingest(topics="orders"),
            "payments": ingest(topics="payments"),
            "once": dedupe(from_="orders", by={"id": "lower(payload.id)"}, watermark="1m"),
            "paid": join(left="orders", right="payments", on=["id"], within={"before": "1s"}, watermark="1m"),
        },
    )
    said = parse(
        """\
  once: {kind: dedupe, from: orders, by: {id: lower(payload.id)}, watermark: 1m}
  paid: {kind: join, left: orders, right: payments, on: [id], within: {before: 1s}, watermark: 1m}
"""
    )
    assert [pipeline.flows[name] for name in ("once", "paid")] == [said.flows[name] for name in ("once", "paid")]
