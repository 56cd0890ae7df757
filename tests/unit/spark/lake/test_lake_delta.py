"""Delta's own: what an append may read of the log, and that each decision is made on the table as it is then."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import CommitProperties, Transaction
from pyspark.sql import types as T

from tests.unit.spark.lake import rig
from tidelog.spark.lake import LakeTable, open_table

AMOUNT = T.StructType([*rig.SOURCE.fields, T.StructField("amount", T.LongType())])


def log_of(table: LakeTable) -> Path:
    return Path(table.uri) / "_delta_log"


def checkpoints(table: LakeTable) -> list[int]:
    return sorted(int(path.name[:20]) for path in log_of(table).glob("*.checkpoint.parquet"))


def append_all(table: LakeTable, batches: range, **more: Any) -> list[dict[str, Any]]:
    rows = []
    for batch in batches:
        rows += (part := rig.records(batch * 3, 3, days=1))
        rig.append(table, part, batch=batch, tasks=1, **more)
    return rows


def commit_elsewhere(table: LakeTable, query: str) -> None:
    """As another tool does it, without our lock."""
    found = DeltaTable(Path(table.uri).as_uri())
    mark = CommitProperties(app_transactions=[Transaction(query, 0)])
    _CREATE(found, [], "append", found.schema(), ["event_date"], commit_properties=mark)


_CREATE = DeltaTable.create_write_transaction


def test_an_append_opens_the_table_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To look, and under the lock to commit."""
    table = rig.table_in(tmp_path, "delta")
    rows = append_all(table, range(1))
    opened = 0
    init = DeltaTable.__init__

    def counted(self: DeltaTable, *arguments: Any, **keywords: Any) -> None:
        nonlocal opened
        opened += 1
        init(self, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "__init__", counted)
        rows += append_all(table, range(1, 2))
    assert opened == 2
    assert rig.read_elsewhere(table) == rig.in_order(rows)


def test_no_opening_reads_more_than_ten_commits(tmp_path: Path) -> None:
    """Also after the table has become another one, with other columns."""
    table = rig.table_in(tmp_path, "delta")
    append_all(table, range(25))
    assert checkpoints(table) == [9, 19]
    other = open_table(str(tmp_path / "lake" / "rebuilt"), "delta")
    rows = [rig.record(0, amount=1)]
    rig.append(other, rows, query="other", schema=AMOUNT)
    table.replace_with(other, query="swap", batch=0)
    rows += [{**row, "amount": None} for row in append_all(table, range(25, 40))]
    assert checkpoints(table) == [9, 19, 29, 39]
    assert rig.read_elsewhere(table) == rig.in_order(rows)


def test_batches_are_known_by_the_checkpoint_alone(tmp_path: Path) -> None:
    """Delta's tools remove entries that are older than the table's retention and before a checkpoint."""
    table = rig.table_in(tmp_path, "delta")
    rig.append(table, first := [rig.record(1000)], query="early", batch=7)
    rows = first + append_all(table, range(20))
    for path in log_of(table).glob("*.json"):
        if int(path.stem) <= checkpoints(table)[-1]:
            path.unlink()
    for again in (table, rig.table_in(tmp_path, "delta")):
        assert rig.append(again, first, query="early", batch=7).skipped
        assert rig.append(again, rows[-3:], batch=19).skipped
        assert again.describe().batches == {"early": 7, "q": 19}
    rows += append_all(table, range(20, 22))
    assert rig.read_elsewhere(table) == rig.in_order(rows)


def test_entries_of_the_week_before_leave_the_log_with_the_next_checkpoint(tmp_path: Path) -> None:
    """An opening lists all that is there."""
    table = rig.table_in(tmp_path, "delta")
    rows = append_all(table, range(12))
    last = checkpoints(table)[-1]
    entries = sorted(log_of(table).glob("*.json"))
    kept = [entry for entry in entries if int(entry.stem) >= last]
    for entry in entries:
        age_s = 6 * 86_400 if entry in kept else 8 * 86_400
        os.utime(entry, (entry.stat().st_atime - age_s, entry.stat().st_mtime - age_s))
    rows += append_all(table, range(12, 22))
    assert sorted(log_of(table).glob("*.json"))[: len(kept)] == kept
    assert rig.read_elsewhere(table) == rig.in_order(rows)
    assert table.has_batch(query="q", batch=0)
    assert not table.has_batch(query="q", batch=22)


def test_an_entry_that_a_power_cut_has_emptied_is_made_again(tmp_path: Path) -> None:
    table = rig.table_in(tmp_path, "delta")
    rows = append_all(table, range(3))
    last = sorted(log_of(table).glob("*.json"))[-1]
    last.write_bytes(b"")
    assert rig.read_elsewhere(table) == rig.in_order(rows[:6])
    assert not table.has_batch(query="q", batch=2)
    append_all(table, range(2, 3))
    assert rig.read_elsewhere(table) == rig.in_order(rows)


def test_a_commit_that_fails_and_is_there_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt looks again, rather than trusting what it has opened."""
    table = rig.table_in(tmp_path, "delta")
    rows = append_all(table, range(1))

    def commit_and_fail(self: DeltaTable, *arguments: Any, **keywords: Any) -> None:
        attempts.append(self)
        _CREATE(self, *arguments, **keywords)
        raise CommitFailedError("the answer was lost")

    attempts: list[DeltaTable] = []
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", commit_and_fail)
        assert rig.append(table, more := rig.records(3, 3), batch=1).skipped
    assert len(attempts) == 1
    assert rig.read_elsewhere(table) == rig.in_order(rows + more)


def test_a_log_that_cannot_be_read_is_not_taken_for_no_table(tmp_path: Path) -> None:
    table = rig.table_in(tmp_path, "delta")
    append_all(table, range(3))
    (log_of(table) / f"{0:020}.json").unlink()
    before = sorted(os.listdir(log_of(table)))
    for call in (table.exists, lambda: append_all(table, range(3, 4))):
        with pytest.raises(DeltaError, match="No table metadata"):
            call()
    assert sorted(os.listdir(log_of(table))) == before


def test_what_is_left_of_a_broken_off_drop_is_no_table(tmp_path: Path) -> None:
    table = rig.table_in(tmp_path, "delta")
    append_all(table, range(12))
    for path in log_of(table).iterdir():
        if path.name != "_last_checkpoint":
            path.unlink()
    assert not table.exists()
    assert not table.has_batch(query="q", batch=0)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    names: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: names.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name))
    yield names


def test_an_entry_is_synced_though_other_tools_commit_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: list[str]
) -> None:
    table = rig.table_in(tmp_path, "delta")
    append_all(table, range(2))
    assert [f"{version:020}.json" for version in (0, 1, 2)] == [name for name in synced if name.endswith(".json")]
    synced.clear()

    def commit_in_a_crowd(self: DeltaTable, *arguments: Any, **keywords: Any) -> None:
        commit_elsewhere(table, "before")
        _CREATE(self, *arguments, **keywords)
        commit_elsewhere(table, "after")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", commit_in_a_crowd)
        append_all(table, range(2, 3))
    mine = [path.name for path in log_of(table).glob("*.json") if '"q"' in path.read_text() and int(path.stem) > 2]
    assert mine == [f"{4:020}.json"], "another's is before it"
    assert synced[-1] == "_delta_log"
    assert mine[0] in synced


def test_a_checkpoint_is_synced(tmp_path: Path, synced: list[str]) -> None:
    """One that a power cut has emptied would stand in the way of every opening."""
    table = rig.table_in(tmp_path, "delta")
    append_all(table, range(9))
    name = f"{9:020}.checkpoint.parquet"
    assert name in synced
    assert "_delta_log" in synced[synced.index(name) :]
    (log_of(table) / name).write_bytes(b"")
    with pytest.raises(DeltaError, match="checkpoint"):
        table.exists()
