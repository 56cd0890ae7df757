"""A batch that dies at any step is in the table once after it is written again, and leaves nothing a reader sees."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.unit.spark.lake import rig
from tests.unit.spark.lake.dying import Died, death
from tidelog.spark.lake import FilesLostError
from tidelog.spark.lake.writing import Files

# Who dies does not close its files.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
each_format = pytest.mark.parametrize("format", rig.FORMATS)


@each_format
def test_death_at_every_step_of_the_first_and_of_a_later_batch(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Over and over: what is synced is not what is tried here, and a disk's time is most of it.
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    rows = rig.records(0, 12)
    moments = 0
    for earlier in (0, 4):
        directory, kept = tmp_path / str(earlier), tmp_path / f"{earlier}-kept"
        directory.mkdir()
        if earlier:
            rig.append(rig.table_in(directory, format), rows[:earlier], batch=0)
        directory.rename(kept)
        for at in range(1, 500):
            # In the same place each time: a table may know where it lies.
            shutil.rmtree(directory, ignore_errors=True)
            shutil.copytree(kept, directory)
            table = rig.table_in(directory, format)
            with death(monkeypatch, format, at) as survived:
                try:
                    rig.append(table, rows[earlier:], batch=1)
                except Died:
                    pass
                else:
                    assert survived()
                    break
            moments += 1
            if table.exists() and table.count():
                seen = rows[:earlier] if table.count() == earlier else rows
                assert rig.coordinates(table) == rig.coordinates_of(seen)
            restarted = rig.table_in(directory, format)
            rig.append(restarted, rows[earlier:], batch=1, tasks=3)
            assert rig.append(restarted, rows[earlier:], batch=1).skipped
            _readers_agree(restarted, rows)
            restarted.remove_orphans(older_than_s=0)
            assert rig.data_files(restarted) == set(restarted.files())
            assert rig.coordinates(restarted) == rig.coordinates_of(rows)
    assert moments > 16, "the steps were not seen"


def _readers_agree(table: Any, rows: list[dict[str, Any]]) -> None:
    assert rig.coordinates(table) == rig.coordinates_of(rows)
    if table.format != "parquet":
        assert rig.read_elsewhere(table) == rig.in_order(rows)


def test_readers_by_glob_never_see_rows_that_are_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rig.records(0, 12)
    seen = set()
    for at in range(1, 500):
        table = rig.table_in(tmp_path / str(at), "parquet")
        rig.append(table, rows[:4], batch=0)
        with death(monkeypatch, "parquet", at) as survived, suppress(Died):
            rig.append(table, rows[4:], batch=1)
        by_glob = rig.read_elsewhere(table)
        committed = rig.coordinates(table)
        assert set(rig.coordinates_of(by_glob)) <= set(committed)
        assert len(by_glob) == len(set(rig.coordinates_of(by_glob)))
        seen.add((len(by_glob), len(committed)))
        if survived():
            break
        # Whoever comes next, even to skip the batch, finishes what the dead one had committed.
        rig.append(rig.table_in(tmp_path / str(at), "parquet"), rows[4:], batch=1)
        assert rig.read_elsewhere(table) == rig.in_order(rows)
    assert {(4, 4), (12, 12)} < seen, "and some of those in between: committed, not all of it published"


@each_format
def test_two_drivers_with_one_batch(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that was taken for dead still runs when its successor writes the same batch."""
    rows = rig.records(0, 12)
    rig.append(rig.table_in(tmp_path, format), rows[:4], batch=0)
    both_have_written = threading.Barrier(2)
    done = []

    def drive(tasks: int) -> None:
        table = rig.table_in(tmp_path, format)
        commit = table._store.commit

        def wait_and_commit(*arguments: Any) -> bool:
            both_have_written.wait(60)
            return commit(*arguments)

        monkeypatch.setattr(table._store, "commit", wait_and_commit)
        done.append(rig.append(table, rows[4:], batch=1, tasks=tasks))

    threads = [threading.Thread(target=drive, args=(tasks,)) for tasks in (1, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((one.rows, one.skipped) for one in done) == [(0, True), (8, False)]
    table = rig.table_in(tmp_path, format)
    assert rig.read_elsewhere(table) == rig.in_order(rows)


@each_format
def test_orphans_go_when_they_are_old_and_nothing_else_does(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = rig.table_in(tmp_path, format)
    rows = rig.records(0, 12)
    rig.append(table, rows[:6], batch=0)
    with monkeypatch.context() as patch:
        patch.setattr(table._store, "commit", _die)
        with pytest.raises(Died):
            rig.append(table, rows[6:], batch=1)
    orphans = rig.data_files(table) - set(table.files())
    assert orphans
    assert table.remove_orphans() == []
    assert table.remove_orphans(older_than_s=3600) == []
    _age(orphans | set(table.files()), 7200)
    assert set(table.remove_orphans(older_than_s=3600)) == orphans
    assert rig.data_files(table) == set(table.files())
    assert rig.read_elsewhere(table) == rig.in_order(rows[:6])


@each_format
def test_files_of_a_batch_that_is_being_committed_are_not_lost(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a bound that is too short for the batch: the batch fails and comes again."""
    table = rig.table_in(tmp_path, format)
    rows = rig.records(0, 12)
    rig.append(table, rows[:6], batch=0)
    commit = table._store.commit

    def remove_then_commit(*arguments: Any) -> bool:
        assert rig.table_in(tmp_path, format).remove_orphans(older_than_s=-0.0)
        return commit(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(table._store, "commit", remove_then_commit)
        with pytest.raises(FilesLostError, match="is gone before its commit"):
            _append_slowly(table, rows[6:], monkeypatch)
    assert rig.read_elsewhere(table) == rig.in_order(rows[:6])
    rig.append(table, rows[6:], batch=1)
    assert rig.read_elsewhere(table) == rig.in_order(rows)


def _append_slowly(table: Any, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are old when they are committed, without waiting for it."""
    close = Files.__exit__

    def aged(self: Files, *why: Any) -> None:
        close(self, *why)
        _age(rig.data_files(table) - set(table.files()), 60)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "__exit__", aged)
        rig.append(table, rows, batch=1)


def _die(*_: Any) -> bool:
    raise Died


def _age(paths: set[str], seconds: float) -> None:
    for path in paths:
        found = os.stat(path)
        os.utime(path, (found.st_atime - seconds, found.st_mtime - seconds))
