"""The bench of the way into the lake: what it makes of a table's log."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

from bench.lake_latency import Latency, render, waits_of  # noqa: E402


def commit(table: Path, number: int, at_ms: int, files: dict[str, list[int]]) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    for name, times in files.items():
        pq.write_table(pa.table({"timestamp": pa.array(times, pa.timestamp("ms", "UTC"))}), table / name)
    entry = log / f"{number:020}.json"
    lines = [{"commitInfo": {}}, *({"add": {"path": name}} for name in files), {"txn": {}}]
    entry.write_text("\n".join(map(json.dumps, lines)))
    os.utime(entry, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


def test_a_row_waits_until_the_commit_that_brought_its_file(tmp_path: Path) -> None:
    commit(tmp_path, 0, 1_000, {"a": [500, 900]})
    commit(tmp_path, 1, 2_000, {"b": [1_000, 1_990], "c": [950]})
    commit(tmp_path, 2, 3_000, {})
    assert waits_of(tmp_path, 0) == ([10, 100, 500, 1_000, 1_050], 2)
    assert waits_of(tmp_path, 950) == ([10, 1_000, 1_050], 1)


def test_the_table_has_a_line_for_each_trigger() -> None:
    shown = render([Latency("100ms", 1200, 30, 810, 1500, 1600, 0.0)], 200)
    assert "100ms         1,200       30      810    1,500    1,600    0.00" in shown
