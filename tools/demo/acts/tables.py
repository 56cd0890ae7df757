"""The tables: how much is in each, and what became of the records that were late, twice or broken."""

from __future__ import annotations

from typing import Any, Final

from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.model import Pipeline
from tools.demo.mending import LARGE, REBUILT
from tools.demo.stage import Stage
from tools.demo.tables import opened, read, tables

TITLE: Final = "The tables"
SHOWN: Final = 3


def play(stage: Stage) -> None:
    pipeline = stage.load()
    found = {table.path.rsplit("/", 1)[-1]: opened(table) for table in tables(pipeline)}
    descriptions = [(name, table.describe()) for name, table in found.items()]
    stage.story.table(
        ("TABLE", "FORMAT", "ROWS", "FILES", "BYTES"),
        [(name, one.format, one.rows, one.files, one.bytes) for name, one in descriptions],
    )
    try:
        rows = {name: read(table) for name, table in found.items()}
    except OSError as error:
        stage.fail(f"a table cannot be read: {error}")
        return
    _broken(stage, pipeline, rows)
    _twice(stage, rows)
    _made(stage, rows)
    _windows(stage, rows)


def _broken(stage: Stage, pipeline: Pipeline, rows: dict[str, list[dict[str, Any]]]) -> None:
    ingests = {name: flow for name, flow in pipeline.flows.items() if isinstance(flow, Ingest)}
    names = [name for name, flow in ingests.items() if flow.dead_letters is None]
    broken = {name: [row for row in rows[name] if row["payload_error"] is not None] for name in names}
    sent = {name: stage.facts.acked[name].get("broken", 0) for name in names}
    stage.expect(
        {name: len(found) for name, found in broken.items()} == sent,
        f"broken payloads: {sum(sent.values())} were sent, and each is a row with its bytes and an error",
        f"broken payloads: {sent} were sent, the tables have { ({name: len(f) for name, f in broken.items()}) }",
    )
    shown = [found[0] for found in broken.values() if found]
    stage.story.table(
        ("TOPIC", "PARTITION", "OFFSET", "VALUE", "PAYLOAD_ERROR"),
        [(r["topic"], r["partition"], r["offset"], _short(r["value"]), r["payload_error"]) for r in shown],
    )


def _twice(stage: Stage, rows: dict[str, list[dict[str, Any]]]) -> None:
    sent, again = stage.facts.acked["payments"].get("twice", 0), len(rows["payments_once_duplicates"])
    once, late = len(rows["payments_once"]), len(rows.get("payments_once_late", []))
    ids = [row["payload"]["payment_id"] for row in rows["payments_once"] if row["payload"] is not None]
    stage.expect(
        again == sent and once + again + late == len(rows["payments"]) and len(ids) == len(set(ids)),
        f"payments that came twice: {sent:,}. Of {len(rows['payments']):,} rows {once:,} are in payments_once, "
        f"{again:,} in its table of duplicates, {late:,} without a time that can be read",
        f"payments that came twice: {sent} were sent; {once} once, {again} duplicates, {late} late",
    )


def _made(stage: Stage, rows: dict[str, list[dict[str, Any]]]) -> None:
    """What other flows have made of the orders."""
    orders = [row["payload"] for row in rows["orders"] if row["payload"] is not None]
    large = sum(order["amount"] >= LARGE for order in orders)
    stage.expect(
        len(rows[REBUILT]) == large,
        f"large orders: {large:,}, as many as the orders' own table has of them",
        f"large orders: {len(rows[REBUILT])}, and {large} are in the table of orders",
    )
    counted, customers = sum(row["orders"] for row in rows["customers"]), len(rows["customers"])
    stage.expect(
        counted == len(orders),
        f"customers: {customers:,} rows, one for each, who have made all {counted:,} orders",
        f"customers: {counted} orders of {customers} customers, and {len(orders)} were made",
    )
    pairs, unpaid = len(rows["paid"]), len(rows["unpaid"])
    stage.story.say(f"orders and payments: {pairs:,} pairs; {unpaid:,} orders were not paid within two minutes")


def _windows(stage: Stage, rows: dict[str, list[dict[str, Any]]]) -> None:
    counted, late = sum(row["orders"] for row in rows["revenue"]), len(rows["revenue_late"])
    # The last order of the day has closed all windows but its own.
    still_open = stage.facts.acked["orders"].get("closing", 0)
    in_all = len(rows["orders"])
    stage.expect(
        counted + late + still_open == in_all,
        f"every order is counted once: {counted:,} in {len(rows['revenue']):,} closed windows, {late:,} that came too "
        f"late in revenue_late, {still_open} in a window that is open: {in_all:,} in all",
        f"{counted} orders in closed windows, {late} late ones and {still_open} in an open window are not {in_all}",
    )
    newest = sorted(rows["revenue"], key=lambda row: (row["window_start"], row["country"]))[-SHOWN:]
    stage.story.table(
        ("WINDOW", "COUNTRY", "ORDERS", "AMOUNT", "LARGEST"),
        [(_clock(r["window_start"]), r["country"], r["orders"], r["amount"], r["largest"]) for r in newest],
    )
    late_rows = [row for row in rows["revenue_late"] if row["payload"] is not None][:SHOWN]
    stage.story.table(
        ("LATE ORDER", "ORDERED AT", "WINDOW", "LATE_REASON", "WATERMARK THEN"),
        [
            (
                row["payload"]["order_id"],
                _clock(row["payload"]["ordered_at"]),
                _clock(row["window_start"]),
                row["late_reason"],
                _clock(row["watermark"]),
            )
            for row in late_rows
        ],
    )


def _clock(value: Any) -> str:
    return "-" if value is None else f"{value:%H:%M:%S}"


def _short(value: bytes, most: int = 42) -> str:
    text = value.decode(errors="replace")
    return text if len(text) <= most else f"{text[: most - 3]}..."
