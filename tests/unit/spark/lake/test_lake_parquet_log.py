"""The commits of a Parquet table: replay, checkpoints, readers beside a writer."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.spark.lake import rig
from tidelog.spark.lake import parquet_log
from tidelog.spark.lake.files import DataFile
from tidelog.spark.lake.parquet_log import Commit, ParquetLog, State, schema_commit

SCHEMA = pa.schema([("offset", pa.int64()), ("event_date", pa.date32())])


def _file(number: int) -> DataFile:
    return DataFile(path=f"f{number}.parquet", size=1, rows=1)


def _log(root: Path) -> tuple[ParquetLog, State]:
    (root / "_tidelog").mkdir()
    log, state = ParquetLog(str(root)), State()
    log.append(state, schema_commit(SCHEMA, ("event_date",), 0))
    return log, state


def test_the_state_read_is_the_state_written_with_checkpoints_and_without(tmp_path: Path) -> None:
    log, state = _log(tmp_path)
    for number in range(3 * parquet_log.CHECKPOINT_EVERY + 7):
        removed = (f"f{number - 1}.parquet",) if number % 2 else ()
        forgotten = (f"f{number - 10}.parquet",) if number % 20 == 11 else ()
        log.append(
            state,
            Commit(
                time_ms=number,
                query=f"q{number % 3}",
                batch=number,
                add=(_file(number),),
                remove=removed,
                forget=forgotten,
            ),
        )
        assert ParquetLog(str(tmp_path)).read() == state
    assert state.arrow_schema == SCHEMA
    names = sorted(name for name in os.listdir(tmp_path / "_tidelog"))
    assert [name for name in names if name.endswith(".checkpoint")] == [f"{150:020}.checkpoint"]
    assert [name for name in names if name.endswith(".json")] == [f"{number:020}.json" for number in range(150, 158)]


def test_a_commit_that_was_being_written_when_its_process_died_is_not_there(tmp_path: Path) -> None:
    log, state = _log(tmp_path)
    (tmp_path / "_tidelog" / f"{1:020}.json.tmp").write_bytes(b'{"time_ms":')
    assert log.read() == state


def test_a_reader_beside_a_writer_sees_every_commit_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_log, "CHECKPOINT_EVERY", 3)
    log, state = _log(tmp_path)
    writer = threading.Thread(
        target=lambda: [log.append(state, Commit(time_ms=0, query="q", batch=n, add=(_file(n),))) for n in range(150)]
    )
    writer.start()
    last, reads = -1, 0
    while writer.is_alive():
        seen = ParquetLog(str(tmp_path)).read()
        assert seen is not None
        batch = seen.batches.get("q", -1)
        assert batch >= last
        assert set(seen.files) == {f"f{number}.parquet" for number in range(batch + 1)}
        last, reads = batch, reads + 1
    writer.join()
    assert reads > 3


def test_a_table_goes_over_many_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_log, "CHECKPOINT_EVERY", 4)
    table = rig.table_in(tmp_path, "parquet")
    rows = rig.records(0, 60)
    for batch in range(20):
        rig.append(table, rows[batch * 3 : batch * 3 + 3], batch=batch)
        if batch % 6 == 5:
            table.merge_small_files()
            table.remove_orphans(older_than_s=0)
    assert rig.read_elsewhere(table) == rig.in_order(rows)
    assert rig.append(table, rows, batch=19).skipped
    assert not table._store._log.read().removed  # type: ignore[attr-defined]


def test_a_reader_that_listed_before_a_checkpoint_and_after_its_tidying_lists_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_log, "CHECKPOINT_EVERY", 3)
    log, state = _log(tmp_path)
    for number in range(4):
        log.append(state, Commit(time_ms=0, query="q", batch=number, add=(_file(number),)))
    commits, checkpoints = log._list()
    assert (commits, checkpoints) == ({3, 4}, [3])
    listings = iter([({3, 4}, []), ({0, 1, 2, 3}, []), (commits, checkpoints)])
    monkeypatch.setattr(log, "_list", lambda: next(listings))
    assert log.read() == state
