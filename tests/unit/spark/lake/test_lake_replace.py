"""Rows in the place of others: all of the table, or some of its partitions, in one commit and once per batch."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import types as T

from tests.unit.spark.lake import rig
from tests.unit.spark.lake.dying import Died, death
from tidelog.spark.lake import LakeError, LakeTable, open_table

# Who dies does not close its files.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
each_format = pytest.mark.parametrize("format", rig.FORMATS)
DAYS = (rig.DAY, rig.DAY + dt.timedelta(days=1), None)


def of_days(rows: list[dict[str, Any]], *days: dt.date | None) -> list[dict[str, Any]]:
    return [row for row in rows if row["event_date"] in days]


@each_format
def test_all_rows_go_and_a_repeated_batch_changes_nothing(tmp_path: Path, format: str) -> None:
    table = rig.table_in(tmp_path, format)
    first, second = rig.records(0, 12), rig.records(100, 9)
    assert rig.replace(table, first, batch=0).rows == 12
    rig.append(table, rig.records(50, 5), query="other", batch=7)
    done = rig.replace(table, second, batch=1)
    assert (done.rows, done.skipped) == (9, False)
    assert rig.read_elsewhere(table) == rig.in_order(second)
    for batch in (1, 0):
        assert rig.replace(table, first, batch=batch).skipped
    assert rig.append(table, first, query="other", batch=7).skipped, "what was appended once is not again"
    assert rig.read_elsewhere(table) == rig.in_order(second)
    assert table.describe().batches == {"q": 1, "other": 7}
    rig.append(table, first, batch=2)
    assert rig.read_elsewhere(table) == rig.in_order(first + second)
    assert rig.replace(table, [], batch=3).rows == 0
    assert (table.count(), list(table.rows())) == (0, [])
    assert rig.replace(table, first, batch=3).skipped, "a batch that left nothing is known too"


@each_format
def test_named_partitions_go_and_the_others_stay(tmp_path: Path, format: str) -> None:
    table = rig.table_in(tmp_path, format)
    rows = rig.records(0, 20)
    rig.append(table, rows, batch=0)
    kept = {Path(path).name for path in table.files()}
    fresh = of_days(rig.records(100, 20), DAYS[0], None)
    rig.replace(table, fresh, batch=1, where={"event_date": [DAYS[0], None]})
    assert rig.read_elsewhere(table) == rig.in_order(fresh + of_days(rows, DAYS[1]))
    assert kept & {Path(path).name for path in table.files()}, "their files were not touched"
    rig.replace(table, [], batch=2, where={"event_date": [DAYS[1]]})
    assert rig.read_elsewhere(table) == rig.in_order(fresh)
    rig.replace(table, [], batch=3, where={"event_date": []})
    assert rig.read_elsewhere(table) == rig.in_order(fresh)


@each_format
def test_what_does_not_fit_is_refused_and_changes_nothing(tmp_path: Path, format: str) -> None:
    table = rig.table_in(tmp_path, format)
    rows = rig.records(0, 8)
    rig.append(table, rows, batch=0)
    for where, message in (
        ({"event_date": [DAYS[0]]}, "which is not among the partitions to be replaced"),
        ({"topic": ["orders"]}, r"partitioned by \(event_date\), not by 'topic'"),
        ({"event_date": "2026-11-16"}, "give a list of values, not the text"),
    ):
        with pytest.raises(LakeError, match=message):
            rig.replace(table, rig.records(100, 8), batch=1, where=where)
    assert rig.read_elsewhere(table) == rig.in_order(rows)
    assert table.describe().batches == {"q": 0}


@each_format
def test_any_order_of_appends_replacements_merges_and_repetitions(tmp_path: Path, format: str) -> None:
    for seed in range(1 if format == "iceberg" else 3):
        random = Random(seed)
        table = rig.table_in(tmp_path / str(seed), format)
        model: list[dict[str, Any]] = []
        for batch in range(12):
            rows = rig.records(batch * 100, random.randrange(12))
            days = random.sample(DAYS, random.randint(1, 3))
            step: Callable[..., Any] = rig.replace
            more: dict[str, Any] = {}
            match random.choice(("append", "all", "some", "some")):
                case "append":
                    step = rig.append
                    model = model + rows
                case "all":
                    model = rows
                case _:
                    rows, more = of_days(rows, *days), {"where": {"event_date": days}}
                    model = [row for row in model if row["event_date"] not in days] + rows
            for _ in range(random.randint(1, 2)):
                step(table, rows, batch=batch, **more)
            if random.random() < 0.3:
                table.merge_small_files()
            if random.random() < 0.3:
                table.remove_orphans(older_than_s=0)
                assert rig.data_files(table) == set(table.files())
            assert rig.coordinates(table) == rig.coordinates_of(model), f"seed {seed}, batch {batch}"
        if format != "parquet" or model:
            assert rig.read_elsewhere(table) == rig.in_order(model)


@each_format
def test_death_at_every_step_leaves_the_old_rows_or_the_new(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = rig.records(0, 8), of_days(rig.records(100, 8), *DAYS[:2])
    after = of_days(old, None) + new
    seen = set()
    for first in (True, False):
        directory, kept = tmp_path / f"t{first}", tmp_path / f"t{first}-kept"
        directory.mkdir()
        if not first:
            rig.append(rig.table_in(directory, format), old, batch=0)
        directory.rename(kept)
        before, wanted = ([], new) if first else (old, after)
        for at in range(1, 500):
            # In the same place each time: a table may know where it lies.
            shutil.rmtree(directory, ignore_errors=True)
            shutil.copytree(kept, directory)
            where = {"event_date": DAYS[:2]}
            with death(monkeypatch, format, at) as survived:
                try:
                    rig.replace(rig.table_in(directory, format), new, batch=1, where=where, tasks=1)
                except Died:
                    pass
                else:
                    assert survived()
                    break
            found = rig.coordinates(rig.table_in(directory, format))
            assert found in (rig.coordinates_of(before), rig.coordinates_of(wanted))
            seen.add(found == rig.coordinates_of(wanted))
            restarted = rig.table_in(directory, format)
            rig.replace(restarted, new, batch=1, where=where, tasks=3)
            assert rig.replace(restarted, old, batch=1).skipped
            assert rig.read_elsewhere(restarted) == rig.in_order(wanted)
            restarted.remove_orphans(older_than_s=0)
            assert rig.data_files(restarted) == set(restarted.files())
    assert seen == {True, False}, "there are steps before the commit and after it"


@each_format
def test_two_drivers_with_one_batch(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that was taken for dead still runs when its successor writes the same batch."""
    rig.append(rig.table_in(tmp_path, format), rig.records(0, 6), batch=0)
    rows = rig.records(100, 8)
    both_have_written = threading.Barrier(2)
    done = []

    def drive(tasks: int) -> None:
        table = rig.table_in(tmp_path, format)
        commit = table._replaced

        def wait_and_commit(change: Any) -> Any:
            both_have_written.wait(60)
            return commit(change)

        monkeypatch.setattr(table, "_replaced", wait_and_commit)
        done.append(rig.replace(table, rows, batch=1, tasks=tasks))

    threads = [threading.Thread(target=drive, args=(tasks,)) for tasks in (1, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((one.rows, one.skipped) for one in done) == [(0, True), (8, False)]
    assert rig.read_elsewhere(rig.table_in(tmp_path, format)) == rig.in_order(rows)


@each_format
def test_who_reads_the_old_rows_reads_them_to_the_end(tmp_path: Path, format: str) -> None:
    table = rig.table_in(tmp_path, format)
    rows = rig.records(0, 30)
    for batch in range(3):
        rig.append(table, rows[batch * 10 : batch * 10 + 10], batch=batch)
    for path in rig.data_files(table):
        os.utime(path, (0, 0))
    reader = table.rows()
    first = next(reader)
    rig.replace(table, rig.records(100, 10), batch=3)
    assert table.remove_orphans(older_than_s=3600) == [], "old files, but the table's until now"
    offsets = [offset for batch in (first, *reader) for offset in batch.column("offset").to_pylist()]
    assert sorted(offsets) == list(range(30))
    assert len(table.remove_orphans(older_than_s=0)) == 18
    assert rig.read_elsewhere(table) == rig.in_order(rig.records(100, 10))


@each_format
def test_merging_beside_replacements_brings_nothing_back(tmp_path: Path, format: str) -> None:
    replacing, merging = rig.table_in(tmp_path, format), rig.table_in(tmp_path, format)
    rig.append(replacing, rig.records(0, 20, days=1), batch=0)
    failures: list[BaseException] = []

    def replace_all() -> None:
        try:
            for batch in range(1, 9):
                rig.replace(replacing, rig.records(batch * 100, 20, days=1), batch=batch)
        except BaseException as error:  # seen by the test, in whose thread it is raised again
            failures.append(error)

    thread = threading.Thread(target=replace_all)
    thread.start()
    while thread.is_alive():
        merging.merge_small_files()
    thread.join()
    if failures:
        raise failures[0]
    assert rig.read_elsewhere(replacing) == rig.in_order(rig.records(800, 20, days=1))


@each_format
def test_odd_partition_values_after_a_merge(tmp_path: Path, format: str) -> None:
    """Logs escape what stands in a path, and what is taken out must be called as it came in."""
    table = open_table(str(tmp_path / "lake" / "orders"), format, partition_by=("region",))
    schema = T.StructType([*rig.SOURCE.fields, T.StructField("region", T.StringType())])
    regions = ["é/ü", "50%", "a b", "../up", "x=y", None, "a%20b"]

    def rows(first: int) -> list[dict[str, Any]]:
        return [rig.record(first + n, region=regions[n % 7]) for n in range(21)]

    for batch in range(2):
        rig.append(table, rows(batch * 100), batch=batch, schema=schema)
    table.merge_small_files()
    gone = regions[1:]
    rig.replace(table, [], batch=2, schema=schema, where={"region": gone})
    offsets = sorted(offset for _, _, offset, _ in rig.coordinates(table))
    assert offsets == [n for n in (*range(21), *range(100, 121)) if regions[n % 100 % 7] == "é/ü"]
    rig.replace(table, rows(200), batch=3, schema=schema)
    assert sorted(offset for _, _, offset, _ in rig.coordinates(table)) == list(range(200, 221))
    if format == "delta":
        assert rig.read_elsewhere(table) == rig.in_order(rows(200))


def test_icebergs_list_of_manifests_does_not_grow_with_the_replacements(tmp_path: Path) -> None:
    table = rig.table_in(tmp_path, "iceberg")
    for batch in range(8):
        rig.replace(table, rig.records(batch * 100, 6), batch=batch)
    store: Any = table._store
    loaded = store._registered.load()
    assert len(loaded.current_snapshot().manifests(loaded.io)) <= 2
    _agree(table, rig.records(700, 6))


def _agree(table: LakeTable, rows: list[dict[str, Any]]) -> None:
    assert rig.coordinates(table) == rig.coordinates_of(rows)
    assert rig.read_elsewhere(table) == rig.in_order(rows)
