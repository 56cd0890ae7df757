"""A view of upserts and tombstones against a model in plain Python, through deaths at every step; as of any time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tests.spark.view_rig import BASE_MS, Died, Flowing, Record, death, pipeline_of, read, view
from tidelog.spark.pipeline import as_of
from tidelog.spark.pipeline import view as draft
from tidelog.spark.pipeline.batch_state import StateError
from tidelog.spark.pipeline.sinks import table_of
from tidelog.spark.pipeline.views.as_of import AsOfError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)  # seconds alone, minutes beside others


def batches_of(seed: int, number: int) -> list[list[Record]]:
    """Most keys in one partition, some in two; some times go back; some records have no key."""
    random = Random(seed)
    offsets = [0, 0, 0]
    found = []
    for batch in range(number):
        records = []
        for n in range(25):
            name = random.randrange(14)
            partition = random.randrange(3) if name < 3 else name % 3
            time_ms = BASE_MS + batch * 10_000 + n * 100 - random.choice([0, 0, 0, 15_000])
            value = None if random.random() < 0.3 else b'{"n": %d}' % random.randrange(1000)
            key = None if n == 7 else b"k%d" % name
            records.append(Record(key, value, partition, offsets[partition], time_ms))
            offsets[partition] += random.randint(1, 3)  # what the cleaner took, or a transaction's end
        random.shuffle(records)
        found.append(records)
    return found


def shown(flowing: Flowing) -> list[tuple[Any, ...]]:
    return flowing.rows("key", "n", "partition", "offset")


def expected(records: list[Record]) -> list[tuple[Any, ...]]:
    return sorted(((k, r.json["n"], r.partition, r.offset) for k, r in view(records).items()), key=repr)


def test_the_table_is_the_last_value_of_each_key_through_deaths_and_repetitions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flowing = Flowing(spark, pipeline_of(tmp_path, draft(from_="events", buckets=4, history=True), "n BIGINT"))
    # After each thing that a batch does for good: state, history, table, unapplied rows, manifest.
    # With this seed other orders, by the time alone or by that of the last record, come to other rows.
    for number, records in enumerate(batches_of(19, 5)):
        before = list(flowing.given)
        with death(monkeypatch, 2 + 2 * number), pytest.raises(Died):
            flowing.write(records, number)
        assert shown(flowing) == expected(flowing.given if number >= 2 else before)
        kept = flowing.write(records, number)
        assert shown(flowing) == expected(flowing.given)
    no_key = [(r.partition, r.offset) for r in flowing.given if r.key is None]
    assert kept.rows == len(flowing.given) - len(no_key)
    assert kept.aside == {"unapplied": len(no_key)}
    unapplied = table_of(flowing.flow.unapplied)
    assert read(unapplied, "partition", "offset", "aside_reason") == sorted(
        ((*at, "no key") for at in no_key), key=repr
    )
    assert flowing.flow.changes is not None
    changes = read(table_of(flowing.flow.changes), "partition", "offset", "op")
    with_key = [r for r in flowing.given if r.key is not None]
    ops = [(r.partition, r.offset, "d" if r.value is None else "u") for r in with_key]
    assert changes == sorted(ops, key=repr)
    _as_of_any_time(flowing)
    _a_new_checkpoint_builds_it_anew(flowing)


def _as_of_any_time(flowing: Flowing) -> None:
    times = sorted({record.time_ms for record in flowing.given})
    for time_ms in (times[0] - 1, *times[5 :: len(times) // 3]):
        found = as_of(flowing.spark, flowing.pipeline, "view", datetime.fromtimestamp(time_ms / 1000, UTC))
        rows = sorted((tuple(row[c] for c in ("key", "n", "partition", "offset")) for row in found.collect()), key=repr)
        rows = [(bytes(key), *rest) for key, *rest in rows]
        assert rows == expected([r for r in flowing.given if r.time_ms <= time_ms]), time_ms
    with pytest.raises(AsOfError, match="has no time zone"):
        as_of(flowing.spark, flowing.pipeline, "view", datetime.now(UTC).replace(tzinfo=None))
    with pytest.raises(AsOfError, match="'events' is no view"):
        as_of(flowing.spark, flowing.pipeline, "events", datetime.now(UTC))


def _a_new_checkpoint_builds_it_anew(flowing: Flowing) -> None:
    """Keys that are gone from the log since must not stay."""
    some = [record for record in flowing.given if record.key in (b"k3", b"k4")]
    flowing.write(some, 0, query="another")
    assert shown(flowing) == expected(some)


def test_values_as_they_are_and_a_key_made_of_expressions(spark: SparkSession, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "key": {"name": "CAST(key AS STRING)", "part": "partition % 2"},
        "deletes": "value = 'x'",
    }
    flowing = Flowing(spark, pipeline_of(tmp_path, draft(from_="events", format="parquet", **options)))
    records = [Record(b"a", b"1", 0, 0, BASE_MS), Record(b"a", b"2", 1, 0, BASE_MS), Record(b"a", b"3", 2, 5, BASE_MS)]
    flowing.write([*records, Record(b"b", b"4", 0, 1, BASE_MS)], 0)
    assert flowing.rows("name", "part", "value") == [("a", 0, b"3"), ("a", 1, b"2"), ("b", 0, b"4")]
    flowing.write([Record(b"a", b"x", 1, 1, BASE_MS), Record(b"b", None, 0, 2, BASE_MS)], 1)
    assert flowing.rows("name", "part", "value") == [("a", 0, b"3"), ("b", 0, None)]
    with pytest.raises(AsOfError, match="keeps no history"):
        as_of(spark, flowing.pipeline, "view", datetime.now(UTC))
    changed = Flowing(spark, pipeline_of(tmp_path, draft(from_="events", format="parquet", key="key")))
    with pytest.raises(StateError, match="the flow's deletes and key are not what its table was made with"):
        changed.write([], 2)


def test_a_broken_payload_is_a_row_with_an_error(spark: SparkSession, tmp_path: Path) -> None:
    flowing = Flowing(spark, pipeline_of(tmp_path, draft(from_="events", format="iceberg"), "n BIGINT"))
    flowing.write([Record(b"a", b'{"n": 1}', 0, 0, BASE_MS), Record(b"b", b'{"n": 2}', 0, 1, BASE_MS)], 0)
    flowing.write([Record(b"a", b"{broken", 0, 2, BASE_MS), Record(b"b", None, 0, 3, BASE_MS)], 1)
    assert flowing.rows("key", "n", "payload_error") == [(b"a", None, "not JSON of the given schema")]
