"""Duplicates against a model in plain Python, through crashes at every step of a batch; and what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tests.spark.stateful import BASE_MS, attempts, dies, moment, read
from tidelog.spark.lake import LakeTable
from tidelog.spark.pipeline import Pipeline, batch_state, dedupe, deduping, ingest
from tidelog.spark.pipeline.deduping import Deduping
from tidelog.spark.pipeline.kinds import dedupe as kind
from tidelog.spark.pipeline.kinds.dedupe import Dedupe
from tidelog.spark.pipeline.kinds.kind import PlanError
from tidelog.spark.pipeline.sinks import table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(400)  # seconds alone, minutes beside others

DELAY_MS = 30_000
SCHEMA = "topic string, partition int, offset long, id string, at timestamp, tags map<string, string>"
Place = tuple[str, int, int]


@dataclass(frozen=True)
class Row:
    place: Place
    id: str | None
    time: int | None


def flow_of(tmp_path: Path, **changed: Any) -> Dedupe:
    options: dict[str, Any] = {"from_": "rows", "by": ["id"], "time": "at", "watermark": "30s", **changed}
    pipeline = Pipeline.of(
        name="once",
        bootstrap_servers="h:1",
        lake=str(tmp_path / "lake"),
        work=str(tmp_path / "work"),
        flows={"rows": ingest(topics="rows"), "once": dedupe(**options)},
    )
    flow = pipeline.flows["once"]
    assert isinstance(flow, Dedupe)
    return flow


@dataclass
class Model:
    """The rules of docs/pipeline.md once more, row by row."""

    watermark: int | None = None
    keys: dict[str, tuple[int, Place]] = field(default_factory=dict)
    kept: Counter[Place] = field(default_factory=Counter)
    duplicates: dict[Place, Place] = field(default_factory=dict)
    late: dict[Place, str] = field(default_factory=dict)

    def batch(self, rows: list[Row]) -> None:
        before = self.watermark
        self.keys = {k: v for k, v in self.keys.items() if before is None or v[0] + DELAY_MS >= before}
        for row in sorted(rows, key=lambda row: row.place):
            if row.time is None:
                self.late[row.place] = "no event time"
            elif before is not None and row.time < before:
                self.late[row.place] = "older than the watermark"
            elif row.id is None:
                self.kept[row.place] += 1
            elif row.id in self.keys:
                self.duplicates[row.place] = self.keys[row.id][1]
            else:
                self.keys[row.id] = (row.time, row.place)
                self.kept[row.place] += 1
        times = [row.time for row in rows if row.time is not None]
        self.watermark = max([max(times) - DELAY_MS, *([] if before is None else [before])])


def batches_of(seed: int, number: int) -> list[list[Row]]:
    random, ends = Random(seed), Counter[tuple[str, int]]()
    found = []
    for batch in range(number):
        rows = []
        for _ in range(40):
            at = (random.choice("ab"), random.randrange(2))
            time: int | None = BASE_MS + batch * 25_000 + random.randrange(-70_000, 25_000)
            # An id comes again within a batch, a few batches later, and after it was forgotten.
            name = f"{random.randrange(3 * batch, 3 * batch + 15) % 25}"
            known = None if random.random() < 0.05 else name
            rows.append(Row((*at, ends[at]), known, None if random.random() < 0.05 else time))
            ends[at] += 1
        found.append(rows)
    return found


def frame_of(spark: SparkSession, rows: list[Row], random: Random) -> DataFrame:
    """In any order, over any number of tasks."""
    made = [(*row.place, row.id, moment(row.time), {"n": "1"}) for row in rows]
    random.shuffle(made)
    return spark.createDataFrame(made, SCHEMA).repartition(random.randrange(1, 4))


def places(table: LakeTable, *more: str) -> list[tuple[Any, ...]]:
    return read(table, "topic", "partition", "offset", *more)


def check(model: Model, table: LakeTable, duplicates: LakeTable, late: LakeTable) -> None:
    assert Counter(places(table)) == model.kept
    found = places(duplicates, "first_topic", "first_partition", "first_offset")
    assert len(found) == len(model.duplicates)
    assert {row[:3]: row[3:] for row in found} == model.duplicates
    found = places(late, "late_reason")
    assert len(found) == len(model.late)
    assert {row[:3]: row[3] for row in found} == model.late


def test_every_row_is_kept_a_duplicate_or_late_through_crashes_at_every_step(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_state, "FOLDERS_MAX", 2)
    flow, random, home = flow_of(tmp_path), Random(1), tmp_path / "state"
    tables = [table_of(table) for table in flow.tables]

    def make(*given: Any) -> Deduping:
        return Deduping(flow, *given)

    model, folders = Model(), []
    for number, rows in enumerate(batches_of(7, 5)):
        model.batch(rows)
        dead = list(attempts(make, tables, home))[number]
        dies(dead, frame_of(spark, rows, random), number, "dead")
        monkeypatch.setattr(deduping, "FEW_ROWS", (0, 1000)[number % 2])  # another way to the same keys
        kept = make(home, *tables).run(frame_of(spark, rows, random), "q", number, "good")
        assert kept.watermark_ms == model.watermark
        assert kept.counts == {
            "rows": model.kept.total(),
            "duplicates": len(model.duplicates),
            "late": len(model.late),
        }
        folders.append(len(kept.folders("keys")))
    check(model, *tables)
    assert len(model.duplicates) > 20
    assert set(model.late.values()) == {"no event time", "older than the watermark"}
    assert max(folders) == 3  # some were merged
    # What a repeated last batch finds is what it found the first time.
    again = make(home, *tables).run(frame_of(spark, rows, random), "q", number, "again")
    assert again.counts == kept.counts
    check(model, *tables)


def test_the_keys_of_a_small_batch_go_to_what_was_kept_and_not_the_other_way_round(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What was kept may be a thousand times as much: it is read, but not brought together anew."""
    flow = flow_of(tmp_path)
    step = Deduping(flow, tmp_path / "state", *(table_of(table) for table in flow.tables))
    made = [("a", 0, n, str(n), moment(BASE_MS), {}) for n in range(20)]
    rows = step.keyed(spark.createDataFrame(made, SCHEMA))
    kept = step.keyed(spark.createDataFrame([("b", *row[1:]) for row in made[::2]], SCHEMA))
    for is_few in (True, False):
        judged = step.judged(rows, kept, is_few)
        assert {row["id"] for row in judged.where("_first.topic = 'b'").collect()} == {str(n) for n in range(0, 20, 2)}
        plan = judged._jdf.queryExecution().sparkPlan().toString()
        assert ("LeftSemi, BuildRight" in plan) == is_few, plan


def test_rows_of_one_record_are_told_apart_in_the_same_way_each_time(spark: SparkSession, tmp_path: Path) -> None:
    """A query may make several rows of a record, with one key: whichever is the first must be so again."""
    flow = flow_of(tmp_path)
    made = [("a", 0, 1, "x", moment(BASE_MS), {"n": str(n)}) for n in range(20)]
    step = Deduping(flow, tmp_path / "state", *(table_of(table) for table in flow.tables))
    firsts = set()
    for seed in range(3):
        Random(seed).shuffle(made)
        judged = step.judged(step.keyed(spark.createDataFrame(made, SCHEMA).repartition(seed + 1)), None)
        (first,) = judged.where("_first IS NULL").collect()
        firsts.add(first["tags"]["n"])
    assert len(firsts) == 1


@pytest.mark.parametrize(
    ("columns", "changed", "text"),
    [
        ("topic string, partition int, id string, at timestamp", {}, "no column 'offset'; which row is the first"),
        (f"{SCHEMA}, dedupe_key string", {}, "has a column 'dedupe_key', which the tables of a dedupe need"),
        (SCHEMA, {"by": ["idd"]}, "idd"),
        (SCHEMA, {"by": ["tags"]}, "tags|map|MAP"),
        (SCHEMA, {"time": "att"}, "att"),
    ],
)
def test_what_a_stream_lacks_is_told_before_anything_starts(
    spark: SparkSession, tmp_path: Path, columns: str, changed: dict[str, Any], text: str
) -> None:
    from pyspark.errors import AnalysisException

    frame = spark.createDataFrame([], columns)
    with pytest.raises((PlanError, AnalysisException), match=text):
        kind.check(flow_of(tmp_path, **changed), frame)
