"""What a power cut may not take: data files are synced before the commit that names them, and the commit before append
returns. After it Spark writes its checkpoint."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.spark.lake import rig
from tidelog.spark.lake import LakeTable

Watch = Callable[[LakeTable, list[str]], None]

COMMITS = {"delta": "_delta_log/", "iceberg": "metadata/", "parquet": "_tidelog/"}

KINDS = {"delta": {".json"}, "iceberg": {".json", ".avro"}, "parquet": {".tmp"}}


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """From now on, what is synced of the table's directory goes into the list."""

    def begin(table: LakeTable, events: list[str]) -> None:
        def synced(fd: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{fd}"))
            events.append(str(path.relative_to(table.uri)) if path.is_relative_to(table.uri) else "outside")

        monkeypatch.setattr(os, "fsync", synced)

    return begin


@pytest.mark.parametrize("format", rig.FORMATS)
def test_files_then_commit(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch, watch: Watch) -> None:
    table = rig.table_in(tmp_path, format)
    rig.append(table, rig.records(0, 10), batch=0)
    events: list[str] = []
    commit = table._store.commit

    def committing(*arguments: Any) -> bool:
        events.append("commit")
        return commit(*arguments)

    watch(table, events)
    monkeypatch.setattr(table._store, "commit", committing)
    before = set(table.files())
    rig.append(table, rig.records(10, 10), batch=1)
    moment = events.index("commit")
    for file in sorted(set(table.files()) - before):
        path = Path(file).relative_to(table.uri)
        written = str(path.with_name(f"_{path.name}")) if format == "parquet" else str(path)
        assert written in events[:moment]
        assert str(path.parent) in events[events.index(written) : moment], "its directory, after it"
        assert "." in events[events.index(written) : moment], "and the table's"
    logged = {Path(event).suffix for event in events[moment:] if event.startswith(COMMITS[format])}
    assert logged == KINDS[format]
    assert COMMITS[format].rstrip("/") in events[moment:]


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_batch_that_a_dead_process_had_committed_is_synced_before_it_is_passed_over(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch, watch: Watch
) -> None:
    """It may have died between the commit and its sync, and Spark's checkpoint is next."""
    table = rig.table_in(tmp_path, format)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        for batch in range(13):  # Delta has a checkpoint by then
            rig.append(table, rig.records(batch, 1), batch=batch)
    events: list[str] = []
    watch(table, events)
    assert rig.append(table, rig.records(12, 1), batch=12).skipped
    books = COMMITS[format].rstrip("/")
    assert events[-1] == books
    if format == "delta":
        log = sorted(f"{books}/{path.name}" for path in (Path(table.uri) / books).glob("0*"))
        (checkpoint,) = [entry for entry in log if entry.endswith(".parquet")]
        assert set(events) >= set(log[log.index(checkpoint) :])
    events.clear()
    assert not table.has_batch(query="q", batch=13) and books not in events


def test_an_iceberg_catalog_names_only_what_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its database is synced by itself: after a power cut it would name files that are empty."""
    table = rig.table_in(tmp_path, "iceberg")
    rig.append(table, rig.records(0, 10), batch=0)

    def named() -> str:
        with sqlite3.connect(Path(table.uri).parent / "catalog.db") as catalog:
            ((path,),) = catalog.execute("SELECT metadata_location FROM iceberg_tables")
        return str(path)

    before = named()
    at_sync: dict[str, str] = {}

    def synced(fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if path.parent.name == "metadata" or path.name == "metadata":
            at_sync[path.name] = named()

    monkeypatch.setattr(os, "fsync", synced)
    rig.append(table, rig.records(10, 10), batch=1)
    assert named() != before
    assert {Path(name).suffix for name in at_sync} == {".avro", ".json", ""}
    assert Path(named()).name in at_sync
    assert set(at_sync.values()) == {before}
