"""Merging: fewer files, the same rows, whoever appends or reads meanwhile."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.spark.lake import rig
from tidelog.spark.lake import merging
from tidelog.spark.lake.files import DataFile
from tidelog.spark.lake.merging import plan

each_format = pytest.mark.parametrize("format", rig.FORMATS)


@each_format
def test_small_files_become_one_per_day_and_the_batches_stay_known(tmp_path: Path, format: str) -> None:
    table = rig.table_in(tmp_path, format)
    rows = rig.records(0, 60)
    for batch in range(6):
        rig.append(table, rows[batch * 10 : batch * 10 + 10], batch=batch)
    before = set(table.files())
    merged = table.merge_small_files()
    assert merged.before == len(before)
    assert merged.after == len(table.files()) == 3
    assert rig.read_elsewhere(table) == rig.in_order(rows)
    assert rig.coordinates(table) == rig.coordinates_of(rows)
    assert table.describe().batches == {"q": 5}
    assert rig.append(table, rows[50:], batch=5).skipped
    assert table.merge_small_files().before == 0, "what is merged already stays as it is"
    rig.append(table, rig.records(60, 10), batch=6)
    assert rig.read_elsewhere(table) == rig.in_order(rows + rig.records(60, 10))


@each_format
def test_what_was_merged_stays_for_its_readers_until_it_is_old(tmp_path: Path, format: str) -> None:
    table = rig.table_in(tmp_path, format)
    rows = rig.records(0, 30)
    for batch in range(3):
        rig.append(table, rows[batch * 10 : batch * 10 + 10], batch=batch)
    for path in rig.data_files(table):
        os.utime(path, (0, 0))
    reader = table.rows()
    first = next(reader)
    table.merge_small_files()
    assert table.remove_orphans(older_than_s=3600) == [], "old files, but the table's until now"
    offsets = [offset for batch in (first, *reader) for offset in batch.column("offset").to_pylist()]
    assert sorted(offsets) == list(range(30))
    assert len(table.remove_orphans(older_than_s=0)) == 18
    assert rig.data_files(table) == set(table.files())
    assert rig.read_elsewhere(table) == rig.in_order(rows)


def test_the_snapshot_that_was_the_table_at_the_bound_is_kept(tmp_path: Path) -> None:
    table = rig.table_in(tmp_path, "iceberg")
    for batch in range(3):
        rig.append(table, [rig.record(batch)], batch=batch)
    appended = {os.path.basename(path) for path in table.files()}
    table.merge_small_files()
    merged = {os.path.basename(path) for path in table.files()}
    store: Any = table._store
    snapshots = store._registered.load().snapshots()
    kept = store.forget_before(max(found.timestamp_ms for found in snapshots) - 1)
    assert kept == appended | merged
    left = {found.snapshot_id for found in store._registered.load().snapshots()}
    newest = sorted(snapshots, key=lambda found: found.timestamp_ms)
    assert left == {found.snapshot_id for found in newest} - {found.snapshot_id for found in newest[:2]}
    assert table.describe().batches == {"q": 2}


@each_format
def test_appends_beside_merging_lose_nothing(tmp_path: Path, format: str) -> None:
    rows = rig.records(0, 100, days=1)
    appending = rig.table_in(tmp_path, format)
    rig.append(appending, rows[:10], batch=0)
    failures = []
    has_merged = threading.Event()

    def append_all() -> None:
        try:
            for batch in range(1, 10):
                if batch == 5:
                    assert has_merged.wait(120), "a merge between two appends"
                rig.append(appending, rows[batch * 10 : batch * 10 + 10], batch=batch)
        except BaseException as error:  # seen by the test, in whose thread it is raised again
            failures.append(error)

    thread = threading.Thread(target=append_all)
    thread.start()
    table = rig.table_in(tmp_path, format)
    while thread.is_alive():
        if table.merge_small_files().after:
            has_merged.set()
    thread.join()
    if failures:
        raise failures[0]
    table.merge_small_files()
    assert rig.read_elsewhere(table) == rig.in_order(rows)


@pytest.mark.parametrize("format", ["parquet", "iceberg"])
def test_an_append_between_the_writing_and_the_commit_of_a_merge(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = rig.table_in(tmp_path, format)
    rows = rig.records(0, 30, days=1)
    rig.append(table, rows[:10], batch=0)
    rig.append(table, rows[10:20], batch=1)
    merge_bin = merging.merge_bin
    late = iter([rows[20:]])

    def merge_and_append(*arguments: Any) -> list[DataFile]:
        merged: list[DataFile] = merge_bin(*arguments)
        for more in late:
            rig.append(rig.table_in(tmp_path, format), more, batch=2)
        return merged

    monkeypatch.setattr(merging, "merge_bin", merge_and_append)
    assert table.merge_small_files().after == 2
    assert rig.read_elsewhere(table) == rig.in_order(rows)


@pytest.mark.parametrize("format", ["parquet", "iceberg"])
def test_a_merge_gives_way_when_its_files_are_merged_by_another(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a tool that does not know our lock can do that; rows must not be doubled all the same."""
    table = rig.table_in(tmp_path, format)
    rows = rig.records(0, 20, days=1)
    rig.append(table, rows[:10], batch=0)
    rig.append(table, rows[10:], batch=1)
    merge_bin = merging.merge_bin
    others = iter([rig.table_in(tmp_path, format)._store])

    def merge_twice(*arguments: Any) -> list[DataFile]:
        merged: list[DataFile] = merge_bin(*arguments)
        for other in others:
            assert other.merge(1 << 20)[1] == 2
        return merged

    monkeypatch.setattr(merging, "merge_bin", merge_twice)
    assert table.merge_small_files().before == 0
    assert rig.read_elsewhere(table) == rig.in_order(rows)


sizes = st.lists(st.tuples(st.integers(1, 300), st.sampled_from(["a", "b", None])), max_size=30)


@given(sizes, st.integers(2, 400))
def test_a_plan_takes_each_small_file_at_most_once_and_mixes_no_partitions(
    files: list[tuple[int, str | None]], target: int
) -> None:
    known = [
        DataFile(path=f"f{index:03}", size=size, rows=1, partition={"p": value})
        for index, (size, value) in enumerate(files)
    ]
    groups = plan(known, target)
    taken = [file.path for group in groups for file in group]
    assert len(taken) == len(set(taken))
    for group in groups:
        assert len(group) > 1
        assert len({file.partition["p"] for file in group}) == 1
        assert sum(file.size for file in group) <= target
        assert all(file.size < target // 2 for file in group)
    left = [file for file in known if file.path not in taken and file.size < target // 2]
    for value in ("a", "b", None):
        alone = [file for file in left if file.partition["p"] == value]
        pairs = [(one, two) for one in alone for two in alone if one is not two]
        assert all(one.size + two.size + max(file.size for file in known) > target for one, two in pairs)
