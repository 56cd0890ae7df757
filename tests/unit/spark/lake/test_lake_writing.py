"""Rows into files: by partition value, within bounds of memory and open files."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.lake.files import NULL_PARTITION, new_name, partition_directory
from tidelog.spark.lake.stats import column_stats
from tidelog.spark.lake.writing import Files, Layout, split

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string()), ("day", pa.date32())])
days = st.one_of(st.none(), st.dates(dt.date(2026, 1, 1), dt.date(2026, 1, 4)))


@given(st.lists(st.tuples(days, st.one_of(st.none(), st.booleans())), max_size=40))
def test_split_keeps_every_row_and_the_order_within_a_value(values: list[tuple[dt.date | None, bool | None]]) -> None:
    schema = pa.schema([("n", pa.int64()), ("day", pa.date32()), ("flag", pa.bool_())])
    rows = [{"n": n, "day": day, "flag": flag} for n, (day, flag) in enumerate(values)]
    parts = split(pa.RecordBatch.from_pylist(rows, schema=schema), ["day", "flag"])
    expected: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
    for row in rows:
        day, flag = row["day"], row["flag"]
        key = (day and day.isoformat(), None if flag is None else str(flag).lower())
        expected.setdefault(key, []).append(row)
    assert {key: part.to_pylist() for key, part in parts} == expected
    assert len(parts) == len(expected)


@given(st.text(min_size=1))
def test_exact_directories_can_be_read_back(value: str) -> None:
    name = partition_directory({"c": value}, ["c"], exact=True)
    assert "/" not in name
    assert unquote(name.removeprefix("c=")) == value
    assert partition_directory({"c": None}, ["c"], exact=True) == f"c={NULL_PARTITION}"
    loose = partition_directory({"c": value}, ["c"], exact=False)
    assert all(sign.isascii() and (sign.isalnum() or sign in "=_-") for sign in loose)


def test_names_are_never_used_twice_and_keep_to_plain_letters() -> None:
    names = {new_name("b1-../ü x") for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith("b1-_x-") and name.endswith(".parquet") for name in names)


def _rows(count: int, distinct: int) -> pa.RecordBatch:
    start = dt.date(2026, 1, 1)
    return pa.RecordBatch.from_pylist(
        [{"n": n, "text": "x" * 100, "day": start + dt.timedelta(days=n % distinct)} for n in range(count)],
        schema=SCHEMA,
    )


def _read(root: Path, files: Files) -> list[int]:
    return sorted(n for file in files.written for n in pq.ParquetFile(root / file.path).read().column("n").to_pylist())


def test_no_more_files_are_open_than_the_layout_allows(tmp_path: Path) -> None:
    layout = Layout(root=str(tmp_path), schema=SCHEMA, partition_by=("day",), open_files_max=3)
    with Files(layout, "t") as files:
        for _ in range(2):
            files.write(_rows(200, 10))
            assert len(files._open) <= 3
    assert _read(tmp_path, files) == sorted([*range(200)] * 2)
    assert len(files.written) == 20


def test_rows_wait_in_bounded_memory_and_become_large_row_groups(tmp_path: Path) -> None:
    layout = Layout(root=str(tmp_path), schema=SCHEMA, partition_by=("day",), buffer_bytes_max=100_000)
    with Files(layout, "t") as files:
        for _ in range(20):
            files.write(_rows(200, 2))
            assert sum(file.buffered_bytes for file in files._open.values()) <= 100_000
    assert [file.rows for file in files.written] == [2000, 2000]
    groups = pq.ParquetFile(tmp_path / files.written[0].path).metadata.num_row_groups
    assert 2 <= groups <= 8


def test_a_file_is_closed_when_it_is_large(tmp_path: Path) -> None:
    layout = Layout(root=str(tmp_path), schema=SCHEMA, partition_by=(), buffer_bytes_max=1, file_bytes_max=2_000)
    with Files(layout, "t") as files:
        for _ in range(10):
            files.write(_rows(300, 1))
    assert len(files.written) > 2
    assert _read(tmp_path, files) == sorted([*range(300)] * 10)


def test_a_task_that_fails_takes_its_files_along(tmp_path: Path) -> None:
    layout = Layout(root=str(tmp_path), schema=SCHEMA, partition_by=("day",))
    with pytest.raises(ZeroDivisionError), Files(layout, "t") as files:
        files.write(_rows(10, 2))
        raise ZeroDivisionError
    assert not list(tmp_path.rglob("*.parquet"))


def test_bounds_are_those_of_all_row_groups_and_only_exact_ones(tmp_path: Path) -> None:
    schema = pa.schema(
        [("n", pa.int64()), ("text", pa.string()), ("long", pa.string()), ("none", pa.int32()), ("x", pa.float64())]
    )
    rows = [{"n": n, "text": f"t{n}", "long": "y" * 200, "none": None, "x": 1.5} for n in (5, None, -3, 9)]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "f.parquet", row_group_size=1)
    told = column_stats(pq.read_metadata(tmp_path / "f.parquet"), schema)
    assert {name: (stats.low, stats.high, stats.nulls) for name, stats in told.items()} == {
        "n": (-3, 9, 1),
        "text": ("t-3", "tNone", 0),
        "long": (None, None, 0),
        "none": (None, None, 4),
    }
