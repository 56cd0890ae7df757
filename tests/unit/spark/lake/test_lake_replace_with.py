"""A table becomes another one in one commit: rows, columns and the last batches of the other's queries."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T

from tests.unit.spark.lake import rig
from tests.unit.spark.lake.dying import Died, death
from tidelog.spark.lake import LakeError, LakeTable, SchemaError, open_table

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
each_format = pytest.mark.parametrize("format", rig.FORMATS)


def beside(directory: Path, format: str, **options: Any) -> LakeTable:
    return open_table(str(directory / "lake" / "rebuilt"), format, **options)


@each_format
def test_rows_and_batches_are_the_others_and_the_other_may_go(tmp_path: Path, format: str) -> None:
    live, other = rig.table_in(tmp_path, format), beside(tmp_path, format)
    rig.append(live, rig.records(0, 12), query="old", batch=4)
    rows = rig.records(100, 20)
    rig.append(other, rows[:10], query="new", batch=0)
    rig.append(other, rows[10:], query="new", batch=1)
    old_files = rig.data_files(live)
    assert live.replace_with(other, query="swap", batch=0).rows == 20
    shutil.rmtree(other.uri)
    assert rig.read_elsewhere(live) == rig.in_order(rows)
    assert live.describe().batches == {"old": 4, "new": 1, "swap": 0}
    assert rig.append(live, rows[10:], query="new", batch=1).skipped
    rig.append(live, rig.records(200, 5), query="new", batch=2)
    assert rig.read_elsewhere(live) == rig.in_order(rows + rig.records(200, 5))
    assert live.replace_with(other, query="swap", batch=0).skipped, "once, though the other is gone"
    assert {Path(path).name.lstrip("_") for path in old_files} <= {
        Path(path).name.lstrip("_") for path in rig.data_files(live)
    }, "for those who still read them"
    live.remove_orphans(older_than_s=0)
    assert rig.data_files(live) == set(live.files())
    live.merge_small_files()
    assert rig.read_elsewhere(live) == rig.in_order(rows + rig.records(200, 5))


@each_format
def test_columns_become_the_others(tmp_path: Path, format: str) -> None:
    live, other = rig.table_in(tmp_path, format), beside(tmp_path, format)
    lean = T.StructType([field for field in rig.SOURCE.fields if field.name not in ("headers", "key")])
    was = T.StructType([*lean.fields, T.StructField("amount", T.StringType()), T.StructField("gone", T.LongType())])
    now = T.StructType([*lean.fields, T.StructField("amount", T.LongType()), T.StructField("fresh", T.StringType())])

    def rows(first: int, **more: Any) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in {**row, **more}.items() if name not in ("headers", "key")}
            for row in rig.records(first, 6)
        ]

    rig.append(live, rows(0, amount="1", gone=1), schema=was)
    rig.append(other, rows(100), schema=lean)
    rig.append(other, rows(200, amount=7, fresh="x"), batch=1, schema=now)
    live.replace_with(other, query="swap", batch=0)
    wanted = rows(100, amount=None, fresh=None) + rows(200, amount=7, fresh="x")
    assert rig.read_elsewhere(live) == rig.in_order(wanted)
    rig.append(live, rows(300, amount=8, fresh="y"), batch=2, schema=now)
    assert rig.read_elsewhere(live) == rig.in_order(wanted + rows(300, amount=8, fresh="y"))
    assert live.merge_small_files().before
    assert rig.read_elsewhere(live) == rig.in_order(wanted + rows(300, amount=8, fresh="y"))


@each_format
def test_tables_that_are_not_there_or_not_alike(tmp_path: Path, format: str) -> None:
    live, other = rig.table_in(tmp_path, format), beside(tmp_path, format)
    with pytest.raises(LakeError, match="there is a table neither in"):
        live.replace_with(other, query="swap", batch=0)
    rig.append(other, rig.records(0, 6), query="new", batch=0)
    live.replace_with(other, query="swap", batch=0)
    assert rig.read_elsewhere(live) == rig.in_order(rig.records(0, 6)), "a table that was not there is made"
    empty = open_table(str(tmp_path / "lake" / "empty"), format)
    live.replace_with(empty, query="swap", batch=1)
    assert live.count() == 0, "of a table without a batch nothing is there"
    by_topic = open_table(str(tmp_path / "lake" / "by_topic"), format, partition_by=("topic",))
    rig.append(by_topic, rig.records(0, 3))
    with pytest.raises(SchemaError, match=r"is partitioned by \(topic\), the table in .* by \(event_date\)"):
        live.replace_with(by_topic, query="swap", batch=2)
    foreign = open_table(str(tmp_path / "foreign"), "parquet" if format == "delta" else "delta")
    with pytest.raises(LakeError, match=f"a {format} table cannot be replaced with one of format"):
        live.replace_with(foreign, query="swap", batch=2)


@each_format
def test_death_at_every_step_leaves_one_table_or_the_other(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = rig.records(0, 6), rig.records(100, 6)
    directory, kept = tmp_path / "tables", tmp_path / "kept"
    directory.mkdir()
    rig.append(rig.table_in(directory, format), old, query="old", batch=3, tasks=1)
    rig.append(beside(directory, format), new, query="new", batch=1, tasks=1)
    directory.rename(kept)
    seen = set()
    for at in range(1, 500):
        # In the same place each time: a table may know where it lies.
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(kept, directory)
        with death(monkeypatch, format, at) as survived:
            try:
                rig.table_in(directory, format).replace_with(beside(directory, format), query="swap", batch=0)
            except Died:
                pass
            else:
                assert survived()
                break
        table = rig.table_in(directory, format)
        is_new = rig.coordinates(table) == rig.coordinates_of(new)
        assert is_new or rig.coordinates(table) == rig.coordinates_of(old)
        assert table.describe().batches == ({"old": 3, "new": 1, "swap": 0} if is_new else {"old": 3})
        seen.add(is_new)
        table.replace_with(beside(directory, format), query="swap", batch=0)
        assert rig.read_elsewhere(table) == rig.in_order(new)
        assert table.describe().batches == {"old": 3, "new": 1, "swap": 0}
        table.remove_orphans(older_than_s=0)
        assert rig.data_files(table) == set(table.files())
        assert rig.read_elsewhere(beside(directory, format)) == rig.in_order(new)
    assert seen == {True, False}, "there are steps before the commit and after it"


def test_files_are_copied_where_they_cannot_be_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    live, other = rig.table_in(tmp_path, "delta"), beside(tmp_path, "delta")
    rig.append(other, rig.records(0, 6))
    monkeypatch.setattr(os, "link", refuse)
    live.replace_with(other, query="swap", batch=0)
    shutil.rmtree(other.uri)
    assert rig.read_elsewhere(live) == rig.in_order(rig.records(0, 6))


def test_a_table_that_is_being_written_to_is_not_taken_over_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, other = rig.table_in(tmp_path, "parquet"), beside(tmp_path, "parquet")
    rig.append(other, rig.records(0, 5), query="new", batch=0)
    files, more = other._store.files, iter([rig.records(5, 5)])

    def list_and_append() -> Any:
        found = files()
        for rows in more:
            rig.append(beside(tmp_path, "parquet"), rows, query="new", batch=1)
        return found

    monkeypatch.setattr(other._store, "files", list_and_append)
    live.replace_with(other, query="swap", batch=0)
    assert live.describe().batches["new"] == 1
    assert rig.read_elsewhere(live) == rig.in_order(rig.records(0, 10))
