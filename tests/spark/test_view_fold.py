"""Events folded by key against a model in plain Python; tombstones; Debezium's envelopes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tests.spark.view_rig import BASE_MS, Died, Flowing, Record, death, latest, pipeline_of, read
from tidelog.spark.pipeline import as_of
from tidelog.spark.pipeline import view as draft
from tidelog.spark.pipeline.kinds.kind import PlanError
from tidelog.spark.pipeline.kinds.view import KIND
from tidelog.spark.pipeline.sinks import table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)  # seconds alone, minutes beside others

BALANCE = "sum(CASE payload.type WHEN 'deposit' THEN payload.amount ELSE -payload.amount END)"
FOLD = {
    "balance": BALANCE,
    "events": "count",
    "largest": "max(payload.amount)",
    "mean": "avg(payload.amount)",
    "opened": "first(payload.type)",
    "latest": "last(payload.note)",
}
COLUMNS = ("key", *FOLD, "partition", "offset")


def account_events(seed: int, number: int) -> list[list[Record]]:
    random, offsets, found = Random(seed), [0, 0], []
    for batch in range(number):
        records = []
        for _ in range(20):
            account = random.randrange(6)
            event = {"type": random.choice(["deposit", "withdrawal"]), "amount": random.randrange(100)}
            if random.random() < 0.5:
                event["note"] = f"n{random.randrange(100)}"
            value = None if random.random() < 0.1 else json.dumps(event).encode()
            time_ms = BASE_MS + batch * 1000 + random.randrange(3000)
            records.append(Record(b"a%d" % account, value, account % 2, offsets[account % 2], time_ms))
            offsets[account % 2] += 1
        found.append(records)
    return found


def expected(records: list[Record]) -> list[tuple[Any, ...]]:
    events: dict[bytes | None, list[Record]] = {}
    for record in latest(records):
        if record.value is None:
            events.pop(record.key, None)
        else:
            events.setdefault(record.key, []).append(record)
    found = []
    for key, those in events.items():
        values = [record.json for record in those]
        amounts = [value["amount"] for value in values]
        balance = sum(v["amount"] if v["type"] == "deposit" else -v["amount"] for v in values)
        note = next((value["note"] for value in reversed(values) if "note" in value), None)
        mean = sum(amounts) / len(amounts)
        measures = (balance, len(values), max(amounts), mean, values[0]["type"], note)
        found.append((key, *measures, those[-1].partition, those[-1].offset))
    return sorted(found, key=repr)


def test_a_fold_is_what_the_events_of_each_key_come_to(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = "type STRING, amount BIGINT, note STRING"
    options: dict[str, Any] = {"fold": FOLD, "buckets": 3, "history": True}
    flowing = Flowing(spark, pipeline_of(tmp_path, draft(from_="events", **options), schema))
    batches = account_events(5, 3)
    for number, records in enumerate(batches):
        with death(monkeypatch, 2 + 2 * number), pytest.raises(Died):
            flowing.write(records, number)
        flowing.write(records, number)
        assert flowing.rows(*COLUMNS) == expected(flowing.given)
    broken = Record(b"a1", b"{broken", 1, 1000, BASE_MS)
    flowing.write([broken], 3)
    assert read(table_of(flowing.flow.unapplied), "offset", "aside_reason") == [
        (1000, "payload: not JSON of the given schema")
    ]
    flowing.given.remove(broken)
    assert flowing.rows(*COLUMNS) == expected(flowing.given)
    time_ms = BASE_MS + 2500
    found = as_of(spark, flowing.pipeline, "view", datetime.fromtimestamp(time_ms / 1000, UTC))
    rows = sorted(((bytes(row["key"]), *(row[c] for c in COLUMNS[1:])) for row in found.collect()), key=repr)
    assert rows == expected([record for record in flowing.given if record.time_ms <= time_ms])


ROW = "STRUCT<id: BIGINT, name: STRING>"
DEBEZIUM = f"op STRING, ts_ms BIGINT, before {ROW}, after {ROW}"


def envelope(op: str, before: Any, after: Any, ts_ms: int = 0) -> bytes:
    return json.dumps({"before": before, "after": after, "source": {"table": "c"}, "op": op, "ts_ms": ts_ms}).encode()


def row(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "name": name}


# As Debezium's PostgreSQL connector writes them, one table with the primary key id.
CAPTURED = [
    (1, envelope("r", None, row(1, "Sally"), 10)),  # a snapshot's read
    (2, envelope("r", None, row(2, "George"), 10)),
    (3, envelope("c", None, row(3, "Edward"), 20)),
    (1, envelope("u", row(1, "Sally"), row(1, "Sally-Marie"), 30)),
    (2, envelope("d", row(2, "George"), None, 40)),
    (2, None),  # the tombstone for the log cleaner
    (3, envelope("d", row(3, "Edward"), None, 50)),
    (3, None),
    (3, envelope("c", None, row(3, "Edwina"), 60)),
]
ODD = [
    (None, envelope("t", None, None)),  # a truncated table
    (1, b'{"op": "u"}'),
    (1, b"not an envelope"),
]


def captured(events: list[tuple[int | None, bytes | None]]) -> list[Record]:
    keys = [None if number is None else json.dumps({"id": number}).encode() for number, _ in events]
    return [Record(key, value, 0, n, BASE_MS + n) for n, (key, (_, value)) in enumerate(zip(keys, events, strict=True))]


def test_debezium_envelopes_are_the_captured_table(spark: SparkSession, tmp_path: Path) -> None:
    options: dict[str, Any] = {"envelope": "debezium", "buckets": 2, "history": True}
    options["time"] = "timestamp_millis(payload.ts_ms)"
    flowing = Flowing(spark, pipeline_of(tmp_path, draft(from_="events", **options), DEBEZIUM))
    records = captured([*CAPTURED, *ODD])
    flowing.write(records[:6], 0)
    assert flowing.rows("id", "name") == [(1, "Sally-Marie"), (3, "Edward")]
    flowing.write(records[6:], 1)
    assert flowing.rows("id", "name", "offset") == [(1, "Sally-Marie", 3), (3, "Edwina", 8)]
    assert read(table_of(flowing.flow.unapplied), "offset", "aside_reason") == [
        (10, "no row after the change"),
        (11, "no Debezium envelope"),
        (9, "no change of a row: op t"),
    ]
    assert flowing.flow.changes is not None
    assert read(table_of(flowing.flow.changes), "offset", "op") == [(n, op) for n, op in enumerate("rrcuddddc")]
    then = as_of(spark, flowing.pipeline, "view", datetime.fromtimestamp(0.045, UTC))
    assert sorted((row["id"], row["name"]) for row in then.collect()) == [(1, "Sally-Marie"), (3, "Edward")]


def test_debezium_with_connects_schema_around_it_and_a_key_of_the_row(spark: SparkSession, tmp_path: Path) -> None:
    options: dict[str, Any] = {"envelope": "debezium", "key": "row.id", "columns": {"who": "upper(row.name)"}}
    flowing = Flowing(spark, pipeline_of(tmp_path, draft(from_="events", **options), f"payload STRUCT<{DEBEZIUM}>"))
    wrapped = [
        (number, None if value is None else b'{"schema": {}, "payload": ' + value + b"}") for number, value in CAPTURED
    ]
    flowing.write(captured(wrapped), 0)
    assert flowing.rows("id", "who") == [(1, "SALLY-MARIE"), (3, "EDWINA")]
    assert read(table_of(flowing.flow.unapplied), "offset", "aside_reason") == [(5, "tombstone"), (7, "tombstone")]


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({"envelope": "debezium"}, "n BIGINT", "'events' has no payload with op, before and after"),
        ({}, "offset BIGINT", "payload has a field 'offset', and the table a column of that name already"),
    ],
)
def test_what_only_the_columns_can_show(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], schema: str, message: str
) -> None:
    flowing = Flowing(spark, pipeline_of(tmp_path, draft(from_="events", **options), schema))
    with pytest.raises(PlanError, match=message):
        KIND.check(flowing.flow, flowing.frame([]))
