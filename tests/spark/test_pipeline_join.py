"""Joins of two streams against a model in plain Python, through crashes at every step; joins with a table."""

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
from tidelog.spark.pipeline import Pipeline, batch_state, ingest, join, join_batch
from tidelog.spark.pipeline.join_audit import JoinRecords
from tidelog.spark.pipeline.join_rows import both
from tidelog.spark.pipeline.joining import Joining
from tidelog.spark.pipeline.kinds import join as kind
from tidelog.spark.pipeline.kinds.join import SIDES, Join
from tidelog.spark.pipeline.kinds.kind import PlanError
from tidelog.spark.pipeline.looking_up import LookupSink
from tidelog.spark.pipeline.sinks import table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(400)  # seconds alone, minutes beside others

DELAY_MS, BEFORE_MS, AFTER_MS = 20_000, 5_000, 15_000
SCHEMA = "topic string, partition int, offset long, timestamp timestamp, id {}, at timestamp"
Place = tuple[str, int, int]


@dataclass(frozen=True)
class Row:
    side: str
    offset: int
    id: int | None
    time: int | None

    @property
    def place(self) -> Place:
        return (self.side, 0, self.offset)


def pipeline_of(tmp_path: Path, **changed: Any) -> Pipeline:
    options: dict[str, Any] = {
        "left": "orders",
        "right": "payments",
        "on": ["id"],
        "time": "at",
        "within": {"before": "5s", "after": "15s"},
        "watermark": "20s",
        "type": "left",
    }
    return Pipeline.of(
        name="joins",
        bootstrap_servers="h:1",
        lake=str(tmp_path / "lake"),
        work=str(tmp_path / "work"),
        flows={
            "orders": ingest(topics="left"),
            "payments": ingest(topics="right"),
            "paid": join(**{name: value for name, value in {**options, **changed}.items() if value is not None}),
        },
    )


def flow_of(tmp_path: Path, **changed: Any) -> Join:
    flow = pipeline_of(tmp_path, **changed).flows["paid"]
    assert isinstance(flow, Join)
    return flow


@dataclass
class Model:
    """The rules of docs/pipeline.md once more, row by row."""

    fastest: bool
    own: dict[str, int] = field(default_factory=dict)
    waiting: list[Row] = field(default_factory=list)
    matched: set[Row] = field(default_factory=set)
    joined: Counter[tuple[Place, Place]] = field(default_factory=Counter)
    unmatched: dict[Place, str] = field(default_factory=dict)
    late: dict[Place, str] = field(default_factory=dict)

    def watermark(self, side: str) -> int | None:
        return max(self.own.values(), default=None) if self.fastest else self.own.get(side)

    def batch(self, rows: list[Row]) -> None:
        before = {side: self.watermark(side) for side in ("left", "right")}
        fresh = []
        for row in rows:
            mark = before[row.side]
            if row.time is None:
                self.late[row.place] = "no event time"
            elif mark is not None and row.time < mark:
                self.late[row.place] = "older than the watermark"
            elif row.id is None:
                self.unmatched[row.place] = "no key"
            else:
                fresh.append(row)
        self.waiting += fresh
        for left in (row for row in self.waiting if row.side == "left"):
            for right in (row for row in self.waiting if row.side == "right"):
                assert left.time is not None
                assert right.time is not None
                if left not in fresh and right not in fresh:
                    continue
                if left.id == right.id and left.time - BEFORE_MS <= right.time <= left.time + AFTER_MS:
                    self.joined[left.place, right.place] += 1
                    self.matched |= {left, right}
        for side in ("left", "right"):
            times = [row.time for row in rows if row.side == side and row.time is not None]
            if times:
                self.own[side] = max(max(times) - DELAY_MS, self.own.get(side, -(1 << 62)))
        for row in [row for row in self.waiting if self.is_over(row)]:
            self.waiting.remove(row)
            if row not in self.matched:
                self.unmatched[row.place] = "no partner in time"

    def is_over(self, row: Row) -> bool:
        other = self.watermark("right" if row.side == "left" else "left")
        assert row.time is not None
        return other is not None and row.time + (AFTER_MS if row.side == "left" else BEFORE_MS) < other


def batches_of(seed: int, number: int) -> list[list[Row]]:
    random, ends = Random(seed), Counter[str]()
    found = []
    for batch in range(number):
        rows = []
        for _ in range(40):
            side = random.choice(["left", "right"])
            # The right side is behind the left one, so their watermarks differ.
            start = BASE_MS + batch * 12_000 - (8_000 if side == "right" else 0)
            time: int | None = start + random.randrange(-30_000, 12_000)
            name = None if random.random() < 0.05 else random.randrange(10)
            rows.append(Row(side, ends[side], name, None if random.random() < 0.05 else time))
            ends[side] += 1
        found.append(rows)
    return found


def frame_of(spark: SparkSession, flow: Join, rows: list[Row], random: Random) -> DataFrame:
    """In any order, over any number of tasks. One side's ids are of another width."""
    sides = []
    for side, width in (("left", "int"), ("right", "long")):
        made = [(*row.place, moment(BASE_MS), row.id, moment(row.time)) for row in rows if row.side == side]
        random.shuffle(made)
        sides.append(spark.createDataFrame(made, SCHEMA.format(width)).repartition(random.randrange(1, 4)))
    return both(flow, *sides)


def check(model: Model, flow: Join, table: LakeTable, unmatched: LakeTable, late: LakeTable) -> None:
    places = [f"{side}_{name}" for side in ("left", "right") for name in ("topic", "partition", "offset")]
    assert Counter((row[:3], row[3:]) for row in read(table, *places)) == model.joined
    for of, found, reason in ((model.unmatched, unmatched, "unmatched_reason"), (model.late, late, "late_reason")):
        rows = read(found, "topic", "partition", "offset", reason)
        assert len(rows) == len(of)
        assert {row[:3]: row[3] for row in rows} == of
    for side, left, right in read(unmatched, "side", "left", "right"):
        # Of a side that the join does not keep, there is only which record it was.
        assert (left is not None, right is not None) == (side == "left", False)


@pytest.mark.parametrize("watermark_of", ["slowest", "fastest"])
def test_every_row_is_joined_unmatched_late_or_waiting_through_crashes_at_every_step(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watermark_of: str
) -> None:
    monkeypatch.setattr(batch_state, "FOLDERS_MAX", 2)
    flow, random, home = flow_of(tmp_path, watermark_of=watermark_of), Random(1), tmp_path / "work" / "kept" / "paid"
    tables = [table_of(table) for table in flow.tables]

    def make(*given: Any) -> Joining:
        return Joining(flow, *given)

    model, folders = Model(watermark_of == "fastest"), []
    crashes = list(attempts(make, tables, home)) if watermark_of == "slowest" else []
    for number, rows in enumerate(batches_of(3, 5 if crashes else 3)):
        model.batch(rows)
        if crashes:
            dies(crashes[number], frame_of(spark, flow, rows, random), number, "dead")
        monkeypatch.setattr(join_batch, "FEW_ROWS", (0, 1000)[number % 2])  # another way to the same partners
        kept = make(home, *tables).run(frame_of(spark, flow, rows, random), "q", number, "good")
        assert kept.sides_ms == model.own
        assert kept.counts == {
            "joined": model.joined.total(),
            "unmatched": len(model.unmatched),
            "late": len(model.late),
        }
        folders.append(len(kept.folders("rows")))
    check(model, flow, *tables)
    assert len(model.joined) > 10
    assert set(model.unmatched.values()) == {"no key", "no partner in time"}
    assert set(model.late.values()) == {"no event time", "older than the watermark"}
    assert max(folders) == 3  # as many as there may be, and one; then some were merged
    assert waiting(flow, tmp_path) == {row.place for row in model.waiting if row not in model.matched}
    if not crashes:
        return
    # What a repeated last batch finds is what it found the first time.
    again = make(home, *tables).run(frame_of(spark, flow, rows, random), "q", number, "again")
    assert again.counts == kept.counts
    check(model, flow, *tables)


def test_a_row_that_is_over_when_it_comes_comes_out_though_no_watermark_moves(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The right side is far ahead, and the left row is in time for its own side, but not its latest."""
    flow, random, home = flow_of(tmp_path), Random(1), tmp_path / "work" / "kept" / "paid"
    tables, model = [table_of(table) for table in flow.tables], Model(fastest=False)
    far = BASE_MS + AFTER_MS + 2 * DELAY_MS
    batches = [
        [Row("left", 0, 1, BASE_MS), Row("right", 0, 2, far)],
        [Row("left", 1, 3, BASE_MS - DELAY_MS)],
    ]
    for number, rows in enumerate(batches):
        model.batch(rows)
        Joining(flow, home, *tables).run(frame_of(spark, flow, rows, random), "q", number, "good")
    assert sorted(model.unmatched) == [("left", 0, 0), ("left", 0, 1)]
    check(model, flow, *tables)
    assert waiting(flow, tmp_path) == {("right", 0, 0)}


def waiting(flow: Join, tmp_path: Path) -> set[Place]:
    """As the audit sees them."""
    checkpoint = tmp_path / "work" / "checkpoints" / "paid"
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "q"}')
    assert flow.interval is not None
    waits: set[Place] = set()
    places: Counter[Place] = Counter()
    for side in SIDES:
        told = JoinRecords(flow, flow.interval, side, tmp_path / "work")
        records = [list(outlet()) for outlet in (told.joined, told.unmatched, told.late, told.waiting)]
        places.update(
            (r["topic"], r["partition"], r["offset"]) for found in records for b in found for r in b.to_pylist()
        )
        waits |= {(r["topic"], r["partition"], r["offset"]) for b in records[-1] for r in b.to_pylist()}
    assert max(places.values()) == 1
    return waits


@pytest.mark.parametrize(
    ("columns", "changed", "text"),
    [
        ("topic string, partition int, offset long, id int, at timestamp", {}, "'payments' has no column 'timestamp'"),
        (SCHEMA.format("string"), {}, r"on: id is int and id is string; both must be of one type .* write a CAST"),
        (SCHEMA.format("int"), {"on": ["idd"]}, "idd"),
        (SCHEMA.format("int"), {"time": {"left": "at", "right": "att"}}, "att"),
    ],
)
def test_what_a_side_lacks_is_told_before_anything_starts(
    spark: SparkSession, tmp_path: Path, columns: str, changed: dict[str, Any], text: str
) -> None:
    from pyspark.errors import AnalysisException

    left, right = spark.createDataFrame([], SCHEMA.format("int")), spark.createDataFrame([], columns)
    with pytest.raises((PlanError, AnalysisException), match=text):
        both(flow_of(tmp_path, **changed), left, right)


@pytest.mark.parametrize("format", ["delta", "parquet", "iceberg"])
def test_a_table_is_looked_up_as_it_is_at_each_batch(spark: SparkSession, tmp_path: Path, format: str) -> None:
    if format == "iceberg":
        pytest.importorskip("pyiceberg")
    alone = {"within": None, "watermark": None, "type": None, "time": None}
    right = {"path": "names", "format": format}
    pipeline = pipeline_of(tmp_path, right=right, on={"id": "customer"}, **alone)
    flow = pipeline.flows["paid"]
    assert isinstance(flow, Join)
    table = table_of(flow.table)
    assert not isinstance(flow.right, str)
    assert flow.right.table is not None
    names = table_of(flow.right.table)

    def batch(number: int, *ids: int | None) -> None:
        made = [("left", 0, 10 * number + n, moment(BASE_MS), i, moment(BASE_MS)) for n, i in enumerate(ids)]
        frame = spark.createDataFrame(made, SCHEMA.format("int"))
        kind.check(flow, frame)
        LookupSink(flow, pipeline).write(frame, "q", number, "a")

    def name(number: int, days: int, *rows: tuple[Any, ...], more: str = "") -> None:
        made = spark.createDataFrame(list(rows), f"customer long, name string{more}")
        names.append(made.selectExpr("*", f"date'2026-11-01' + {days} AS event_date"), query="n", batch=number)

    batch(0, 1, None)  # there is no table yet
    name(0, 0, (1, "one"), (1, "uno"))
    name(1, 1, (2, "two", "b"), more=", tier string")
    batch(1, 1, 2, 3, None)
    batch(0, 1, 1)  # it comes again after a crash, and was written already
    found = read(table, "left_offset", "matched")
    assert sorted(found) == [(0, False), (1, False), (10, True), (10, True), (11, True), (12, False), (13, False)]
    rights = [(r["name"], r["tier"], str(r["event_date"])) for (r,) in reads_right(table) if r is not None]
    assert sorted(rights) == [("one", None, "2026-11-01"), ("two", "b", "2026-11-02"), ("uno", None, "2026-11-01")]
    told = [offset for batch in outlet_rows(flow, pipeline) for offset in batch["offset"].to_pylist()]
    assert sorted(told) == [0, 1, 10, 11, 12, 13]


def reads_right(table: LakeTable) -> list[tuple[Any]]:
    import pyarrow.parquet as pq

    rows = [row for file in table.files() for row in pq.ParquetFile(file).read().to_pylist()]
    return [(row.get("right"),) for row in rows]


def outlet_rows(flow: Join, pipeline: Pipeline) -> list[Any]:
    nothing: Any = None
    (outlet,) = kind.outlets(flow, pipeline, nothing, flow.left)
    return list(outlet.table.rows())
