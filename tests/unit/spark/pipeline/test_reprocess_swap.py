"""The swap of a reprocess dies at each of its steps, and is finished: readers find the old rows or the new ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tests.unit.spark.lake.rig import FORMATS, append, coordinates, coordinates_of, records
from tidelog.runtime.dirlock import lock_file
from tidelog.spark.pipeline.model import Table
from tidelog.spark.pipeline.reprocess.places import OLD, SHADOW, Places, query_of
from tidelog.spark.pipeline.reprocess.swap import Swap, SwappedTable, decide, discard, finish, finish_all
from tidelog.spark.pipeline.sinks import table_of

OLD_QUERY, NEW_QUERY = "old-query", "new-query"
BEFORE = records(0, 12)
AFTER = records(0, 20)[3:]
STEPS = [
    "before the journal",
    "journal",
    "table 0",
    "table 1",
    "table 2",
    "state",
    "no checkpoint",
    "checkpoint",
    "done",
]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)


class Died(Exception):
    """A process, at a step."""


class Rig:
    """A flow that has landed something, and its shadow."""

    def __init__(self, home: Path, format: Any, keep_old: bool = False) -> None:
        self.work = home / "work"
        self.places = Places(self.work, "minutes")
        self.table = Table(path=str(home / "lake" / "minutes"), format=format)
        self.late = Table(path=str(home / "lake" / "minutes_late"), format=format)
        append(table_of(self.table), BEFORE, OLD_QUERY, 7)
        append(table_of(self.late), BEFORE[:2], OLD_QUERY, 7)  # the new flow has no late rows: this one gets empty
        append(table_of(Table(path=self.table.path + SHADOW, format=format)), AFTER, NEW_QUERY, 3)
        make_work(self.work, OLD_QUERY)
        make_work(self.places.shadow, NEW_QUERY)
        self.places.plan.write_text("a plan")
        tables = [
            SwappedTable(path=one.path, format=one.format, partition_by=one.partition_by)
            for one in (self.table, self.late, Table(path=str(home / "lake" / "never_made"), format=format))
        ]
        self.swap = Swap(flow="minutes", query=NEW_QUERY, batch=4, tables=tuple(tables), keep_old=keep_old)

    def run(self, die_at: str | None = None) -> None:
        def step(name: str) -> None:
            self.look()
            if name == die_at:
                raise Died(name)

        decide(self.places, self.swap, step)
        finish(self.places, step)

    def look(self) -> list[Any]:
        """What a reader of the table finds: one or the other, whole."""
        found = coordinates(table_of(self.table))
        assert found in (coordinates_of(BEFORE), coordinates_of(AFTER))
        assert table_of(self.table).count() == len(found)
        return found

    def check_swapped(self) -> None:
        assert self.look() == coordinates_of(AFTER)
        assert table_of(self.late).count() == 0
        assert table_of(self.table).describe().batches[NEW_QUERY] == 4
        assert query_of(self.places.checkpoint) == NEW_QUERY
        windows = self.work / "kept" / "minutes"
        assert [path.name for path in windows.iterdir()] == [NEW_QUERY]
        assert (windows / NEW_QUERY / "4.json").read_text() == NEW_QUERY
        assert (self.work / "starts" / "minutes").read_text() == OLD_QUERY
        assert not self.places.plan.exists()
        assert not self.places.shadow.exists()
        assert not Path(self.table.path + SHADOW).exists()


def make_work(work: Path, query: str) -> None:
    checkpoint = work / "checkpoints" / "minutes"
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": query}))
    state = work / "kept" / "minutes" / query
    state.mkdir(parents=True)
    (state / "4.json").write_text(query)
    (work / "starts").mkdir()
    (work / "starts" / "minutes").write_text(query)
    (work / "state").mkdir()
    (work / "state" / "run.json").write_text("{}")


@pytest.mark.parametrize("step", STEPS)
def test_a_death_at_each_step_is_finished_by_who_comes_next(tmp_path: Path, step: str) -> None:
    rig = Rig(tmp_path, "delta")
    with pytest.raises(Died):
        rig.run(step)
    told: list[str] = []
    finish_all(rig.work, told.append)
    if step == "before the journal":
        assert told == []
        assert rig.look() == coordinates_of(BEFORE)
        assert query_of(rig.places.checkpoint) == OLD_QUERY
        assert rig.places.plan.exists()
        rig.run()
    elif step == "done":  # only leftovers: nobody takes them for something to go on with
        assert not rig.places.plan.exists()
        discard(rig.places, [rig.table, rig.late])
    else:
        assert told == ["minutes: a reprocess had died in the middle of its swap; it is finished"]
    rig.check_swapped()
    finish_all(rig.work, told.append)
    rig.check_swapped()


@pytest.mark.parametrize("step", STEPS[1:-1])
def test_a_death_while_a_death_is_made_up_for(tmp_path: Path, step: str) -> None:
    rig = Rig(tmp_path, "delta")
    with pytest.raises(Died):
        rig.run("journal")

    def die(name: str) -> None:
        if name == step:
            raise Died

    if step != "journal":
        with pytest.raises(Died):
            finish(rig.places, die)
    assert finish(rig.places)
    assert not finish(rig.places)
    rig.check_swapped()


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_swapped_and_the_old_rows_are_kept_if_asked(tmp_path: Path, format: str) -> None:
    rig = Rig(tmp_path, format, keep_old=True)
    rig.run()
    rig.check_swapped()
    kept = table_of(Table(path=rig.table.path + OLD, format=rig.table.format))
    assert coordinates(kept) == coordinates_of(BEFORE)
    assert query_of(rig.places.old / "checkpoints" / OLD_QUERY) == OLD_QUERY
    # Another one, of the flow as it is by now.
    append(table_of(Table(path=rig.table.path + SHADOW, format=rig.table.format)), BEFORE, "third", 0)
    make_work(rig.places.shadow, "third")
    swap = Swap(flow="minutes", query="third", batch=0, tables=rig.swap.tables[:1], keep_old=True)
    decide(rig.places, swap)
    finish(rig.places)
    assert rig.look() == coordinates_of(BEFORE)
    assert coordinates(kept) == coordinates_of(AFTER)


def test_a_swap_whose_reprocess_lives_is_left_to_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "parquet")
    with pytest.raises(Died):
        rig.run("journal")
    lock = lock_file(str(rig.places.lock))
    finish_all(rig.work, pytest.fail)
    assert rig.look() == coordinates_of(BEFORE)
    lock.release()
    finish_all(rig.work, lambda text: None)
    rig.check_swapped()
