"""What a power cut may not take: data files are synced before the commit that names them, and the commit before append
returns. After it Spark writes its checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.spark.lake import rig

COMMITS = {"delta": "_delta_log/", "iceberg": "metadata/", "parquet": "_tidelog/"}

KINDS = {"delta": {".json"}, "iceberg": {".json", ".avro"}, "parquet": {".tmp"}}


@pytest.mark.parametrize("format", rig.FORMATS)
def test_files_then_commit(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = rig.table_in(tmp_path, format)
    rig.append(table, rig.records(0, 10), batch=0)
    events: list[str] = []
    commit = table._store.commit

    def committing(*arguments: Any) -> bool:
        events.append("commit")
        return commit(*arguments)

    def synced(fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        events.append(str(path.relative_to(table.uri)) if path.is_relative_to(table.uri) else "outside")

    monkeypatch.setattr(os, "fsync", synced)
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
