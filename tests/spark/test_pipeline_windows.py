"""Windows, watermarks and late rows against a model in plain Python, through crashes at every step of a batch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tidelog.spark.lake import LakeTable, open_table
from tidelog.spark.pipeline import Pipeline, aggregate, ingest
from tidelog.spark.pipeline.aggregating import Aggregating
from tidelog.spark.pipeline.batch_state import BatchState, StateError
from tidelog.spark.pipeline.kinds.aggregate import Aggregate, Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(400)  # seconds alone, minutes beside others

DELAY_MS = 30_000
BASE_MS = 1_790_000_000_000
WINDOWS = {
    "tumbling": {"tumbling": "20s"},
    "sliding": {"sliding": "25s", "every": "10s"},
    "session": {"session": "5s"},
}
Row = tuple[int, str, int | None, int]  # id, country, time in ms, amount


class CrashError(Exception):
    pass


def flow_of(kind: str, tmp_path: Path, **changed: Any) -> Aggregate:
    options: dict[str, Any] = {
        "from_": "rows",
        "time": "at",
        "watermark": "30s",
        "window": WINDOWS[kind],
        "by": ["country"],
        "measures": {
            "number": "count",
            "total": "sum(amount)",
            "least": "min(amount)",
            "most": "max(amount)",
            "mean": "avg(amount)",
            "opening": "first(id)",
            "closing": "last(id)",
            "kinds": "count_distinct(amount)",
            "about": "approx_count_distinct(amount)",
        },
    }
    pipeline = Pipeline.of(
        name="windows",
        bootstrap_servers="h:1",
        lake=str(tmp_path / "lake"),
        work=str(tmp_path / "work"),
        flows={"rows": ingest(topics="rows"), "sums": aggregate(**{**options, **changed})},
    )
    flow = pipeline.flows["sums"]
    assert isinstance(flow, Aggregate)
    return flow


@dataclass
class Model:
    """The rules of docs/pipeline.md once more, row by row."""

    window: Window
    watermark: int | None = None
    open: dict[tuple[str, int, int], list[Row]] = field(default_factory=lambda: defaultdict(list))
    closed: dict[tuple[str, int, int], list[Row]] = field(default_factory=dict)
    late: Counter[tuple[int, int | None]] = field(default_factory=Counter)

    def windows(self, time: int) -> Iterator[tuple[int, int]]:
        size, step = self.window.size_ms, self.window.step_ms or self.window.size_ms
        if self.window.kind == "session":
            yield time, time + size
            return
        start = time // step * step
        while start + size > time:
            yield start, start + size
            start -= step

    def batch(self, rows: list[Row]) -> None:
        before = self.watermark
        for row in rows:
            if row[2] is None:
                self.late[row[0], None] += 1
                continue
            for start, end in self.windows(row[2]):
                if before is not None and end <= before:
                    self.late[row[0], end] += 1
                else:
                    self.open[row[1], start, end].append(row)
        if self.window.kind == "session":
            self._join()
        times = [row[2] for row in rows if row[2] is not None]
        if times:
            self.watermark = max(max(times) - DELAY_MS, before if before is not None else -(1 << 62))
        for key in [key for key in self.open if self.watermark is not None and key[2] <= self.watermark]:
            assert key not in self.closed
            self.closed[key] = self.open.pop(key)

    def _join(self) -> None:
        joined: dict[tuple[str, int, int], list[Row]] = defaultdict(list)
        last: tuple[str, int, int] | None = None
        for key in sorted(self.open):
            if last is not None and last[0] == key[0] and key[1] < last[2]:
                merged = (key[0], last[1], max(last[2], key[2]))
                joined[merged] = joined.pop(last) + self.open[key]
                last = merged
            else:
                joined[key] += self.open[key]
                last = key
        self.open = joined

    def rows(self) -> list[tuple[Any, ...]]:
        found = []
        for (country, start, end), rows in self.closed.items():
            amounts = [row[3] for row in rows]
            first = min(rows, key=lambda row: (row[2], row[0]))[0]
            last = max(rows, key=lambda row: (row[2], row[0]))[0]
            kinds = len(set(amounts))
            mean = round(sum(amounts) / len(amounts), 6)
            line = (len(rows), sum(amounts), min(amounts), max(amounts), mean, first, last, kinds, kinds)
            found.append((country, start, end, *line))
        return sorted(found)


def batches_of(seed: int, number: int = 3) -> list[list[Row]]:
    random, identity = Random(seed), 0
    found = []
    for batch in range(number):
        rows: list[Row] = []
        for _ in range(40):
            identity += 1
            time: int | None = BASE_MS + batch * 25_000 + random.randrange(-70_000, 25_000)
            if random.random() < 0.05:
                time = None
            rows.append((identity, random.choice(["de", "fr"]), time, random.randrange(5)))
        found.append(rows)
    return found


def frame_of(spark: SparkSession, rows: list[Row]) -> DataFrame:
    made = [(i, c, None if t is None else datetime.fromtimestamp(t / 1000, UTC), a) for i, c, t, a in rows]
    return spark.createDataFrame(made, "id long, country string, at timestamp, amount int")


def ms(value: datetime) -> int:
    return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)


def read(table: LakeTable, *columns: str) -> list[tuple[Any, ...]]:
    import pyarrow.parquet as pq

    found = []
    for file in table.files():
        for row in pq.ParquetFile(file).read(columns=list(columns)).to_pylist():
            found += [tuple(row[column] for column in columns)]
    return found


def closed_rows(table: LakeTable) -> list[tuple[Any, ...]]:
    names = ("country", "window_start", "window_end", "number", "total", "least", "most", "mean")
    more = ("opening", "closing", "kinds", "about")
    found = read(table, *names, *more)
    return sorted((r[0], ms(r[1]), ms(r[2]), *r[3:7], round(r[7], 6), *r[8:]) for r in found)


def late_rows(table: LakeTable) -> Counter[tuple[int, int | None]]:
    return Counter((i, None if end is None else ms(end)) for i, end in read(table, "id", "window_end"))


@pytest.fixture(params=["tumbling", "sliding", "session"])
def flow(request: pytest.FixtureRequest, tmp_path: Path) -> Aggregate:
    return flow_of(request.param, tmp_path)


def tables(flow: Aggregate) -> tuple[LakeTable, LakeTable]:
    return open_table(flow.table.path, "delta"), open_table(flow.late.path, "delta")


def test_every_row_is_in_a_window_or_in_the_late_table_through_crashes(
    spark: SparkSession, flow: Aggregate, tmp_path: Path
) -> None:
    table, late = tables(flow)
    model = Model(flow.window)
    for number, rows in enumerate(batches_of(7)):
        model.batch(rows)
        frame = frame_of(spark, rows)
        # A crash after each thing that a batch does for good, then the whole batch.
        for crash in ("late", "table", "keep")[number % 3 : number % 3 + 1]:
            with pytest.raises(CrashError):
                crashing(flow, tmp_path, table, late, crash).run(frame, "q", number, f"crash-{crash}")
        kept = Aggregating(flow, tmp_path / "state", table, late).run(frame, "q", number, "good")
        assert kept.watermark_ms == model.watermark
        assert kept.count("late") == sum(model.late.values())
    assert model.closed
    assert sum(model.late.values()) > 5
    assert closed_rows(table) == model.rows()
    assert late_rows(late) == model.late
    assert {reason for (reason,) in read(late, "late_reason")} == {"window closed", "no event time"}
    # What a repeated last batch finds is what it found the first time.
    again = Aggregating(flow, tmp_path / "state", table, late).run(frame, "q", number, "again")
    assert again.counts == kept.counts
    assert closed_rows(table) == model.rows()
    assert late_rows(late) == model.late


def crashing(flow: Aggregate, tmp_path: Path, table: LakeTable, late: LakeTable, at: str) -> Aggregating:
    """Does everything up to and with the named step, then fails."""

    class Failing:
        def __init__(self, inner: LakeTable, fails: bool) -> None:
            self._inner, self._fails = inner, fails

        def append(self, frame: DataFrame, **which: Any) -> Any:
            found = self._inner.append(frame, **which)
            if self._fails:
                raise CrashError
            return found

    fails_late, fails_table = Failing(late, at == "late"), Failing(table, at in ("table", "late"))
    step = Aggregating(flow, tmp_path / "state", fails_table, fails_late)  # type: ignore[arg-type]
    if at == "keep":

        class Dying(BatchState):
            def keep(self, manifest: Any) -> None:
                super().keep(manifest)
                raise CrashError

        step.state = lambda query, frame: Dying(tmp_path / "state" / "q", step.terms(frame))  # type: ignore[method-assign]
    return step


def test_a_changed_definition_and_a_lost_state_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow = flow_of("tumbling", tmp_path)
    table, late = tables(flow)
    frame = frame_of(spark, batches_of(3, 1)[0])
    Aggregating(flow, tmp_path / "state", table, late).run(frame, "q", 0, "a")
    other = flow_of("tumbling", tmp_path, watermark="31s")
    with pytest.raises(
        StateError, match=r"the flow's watermark is not the one its state was made with; .* another name"
    ):
        Aggregating(other, tmp_path / "state", table, late).run(frame, "q", 1, "a")
    with pytest.raises(StateError, match="no state for batch 5"):
        Aggregating(flow, tmp_path / "elsewhere", table, late).run(frame, "q", 5, "a")
    # A new checkpoint has a new query id, and begins with nothing.
    assert Aggregating(flow, tmp_path / "state", table, late).run(frame, "other", 0, "a").batch == 0


def test_a_decimal_stays_what_it_is_from_batch_to_batch(spark: SparkSession, tmp_path: Path) -> None:
    flow = flow_of("tumbling", tmp_path, by=None, measures={"total": "sum(CAST(amount AS DECIMAL(10, 2)))"})
    table, late = tables(flow)
    for number, rows in enumerate(batches_of(5)):
        Aggregating(flow, tmp_path / "state", table, late).run(frame_of(spark, rows), "q", number, "a")
    model = Model(flow.window)
    for rows in batches_of(5):
        model.batch([(i, "", t, a) for i, _, t, a in rows])
    found = sorted((ms(start), float(total)) for start, total in read(table, "window_start", "total"))
    assert found == sorted((key[1], float(sum(r[3] for r in rows))) for key, rows in model.closed.items())
