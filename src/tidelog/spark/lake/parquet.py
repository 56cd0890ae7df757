"""Plain Parquet files with commits of our own.

A commit is one file in the log (parquet_log.py). Data files lie under hidden names until their commit is durable and
get their plain name after it, so that who reads the directory by glob sees committed rows only. If the process dies
between the two, the next one finishes (`recover`); the log is the truth, `open_path` finds a file under either name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence

import pyarrow as pa

from tidelog.runtime.clock import SystemClock
from tidelog.runtime.durable import sync_dir
from tidelog.spark.lake.errors import DamagedError, LakeError
from tidelog.spark.lake.files import DataFile, hidden_path
from tidelog.spark.lake.locks import held
from tidelog.spark.lake.merging import merge_small
from tidelog.spark.lake.parquet_log import Commit, ParquetLog, State, schema_commit, with_schema
from tidelog.spark.lake.store import Look, Overwrite, require_present
from tidelog.spark.lake.writing import Layout


class ParquetStore:
    def __init__(self, root: str) -> None:
        self.root = root
        self._log = ParquetLog(root)
        self._clock = SystemClock()

    def schema(self) -> pa.Schema | None:
        state = self._log.read()
        return None if state is None else state.arrow_schema

    def partition_by(self) -> tuple[str, ...]:
        return self._state().partition_by

    def evolve(self, schema: pa.Schema, partition_by: tuple[str, ...]) -> None:
        with held(self.root, "commit"):
            state = self._log.read() or State()
            if state.version < 0 or state.arrow_schema != schema:
                self._commit(state, schema_commit(schema, partition_by, self._clock.wall_ms()))

    def layout(self, schema: pa.Schema, partition_by: tuple[str, ...]) -> Layout:
        return Layout(root=self.root, schema=schema, partition_by=partition_by, exact_directories=True, hidden=True)

    def recover(self) -> None:
        with held(self.root, "commit"):
            state = self._log.read()
            if state is not None and state.last is not None:
                self._publish(state.last)

    def settle(self) -> None:
        self._log.settle()

    def look(self, query: str) -> Look | None:
        state = self._log.read()
        if state is None:
            return None
        return Look(schema=state.arrow_schema, partition_by=state.partition_by, last_batch=state.batches.get(query))

    def batches(self) -> dict[str, int]:
        state = self._log.read()
        return {} if state is None else state.batches

    def commit(self, files: Sequence[DataFile], query: str, batch: int) -> bool:
        with held(self.root, "commit"):
            state = self._state()
            if state.batches.get(query, -1) >= batch:
                return False
            require_present(self.root, [(hidden_path(file.path), file.size) for file in files])
            entry = Commit(time_ms=self._clock.wall_ms(), query=query, batch=batch, add=tuple(files))
            self._commit(state, entry)
            return True

    def overwrite(self, change: Overwrite) -> bool:
        with held(self.root, "commit"):
            state = self._state()
            if state.batches.get(change.query, -1) >= change.batch:
                return False
            require_present(self.root, [(hidden_path(file.path), file.size) for file in change.files])
            entry = Commit(
                time_ms=self._clock.wall_ms(),
                query=change.query,
                batch=change.batch,
                marks=dict(change.marks),
                add=tuple(change.files),
                remove=tuple(path for path, file in state.files.items() if change.takes(file)),
            )
            self._commit(state, entry if change.schema is None else with_schema(entry, change.schema))
            return True

    def files(self) -> list[DataFile]:
        state = self._log.read()
        return [] if state is None else list(state.files.values())

    def open_path(self, path: str) -> str:
        plain, hidden = os.path.join(self.root, path), os.path.join(self.root, hidden_path(path))
        # Published while we looked at the hidden name: the third look sees it.
        for place in (plain, hidden, plain):
            if os.path.exists(place):
                return place
        raise DamagedError(f"{path}, a file of the table in {self.root}, is gone; its rows are lost")

    def merge(self, target_bytes: int) -> tuple[int, int]:
        return merge_small(self, target_bytes)

    def forget_before(self, since_ms: int) -> set[str]:
        state = self._log.read()
        if state is None:
            return set()
        late = {path for path, time_ms in state.removed.items() if time_ms > since_ms}
        if gone := tuple(path for path in state.removed if path not in late):
            self._commit(state, Commit(time_ms=self._clock.wall_ms(), forget=gone))
        return {os.path.basename(path) for path in (*state.files, *late)}

    def drop(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def data_directories(self) -> list[str]:
        return [self.root]

    def _state(self) -> State:
        state = self._log.read()
        if state is None:
            raise LakeError(f"there is no table in {self.root}")
        return state

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> bool:
        with held(self.root, "commit"):
            state = self._state()
            if any(file.path not in state.files for file in old):
                return False
            require_present(self.root, [(hidden_path(file.path), file.size) for file in new])
            entry = Commit(time_ms=self._clock.wall_ms(), add=tuple(new), remove=tuple(file.path for file in old))
            self._commit(state, entry)
            return True

    def _commit(self, state: State, commit: Commit) -> None:
        if state.last is not None:
            self._publish(state.last)
        self._log.append(state, commit)
        self._publish(commit)

    def _publish(self, commit: Commit) -> None:
        """Names as the commit wants them; done twice, it does nothing. What is merged away goes before what takes its
        place comes: who reads by glob in between misses rows, rather than counting some twice."""
        for path in commit.remove:
            self._rename(path, hidden_path(path))
        for file in commit.add:
            self._rename(hidden_path(file.path), file.path)
        for directory in {os.path.dirname(path) for path in (*commit.remove, *(file.path for file in commit.add))}:
            sync_dir(os.path.join(self.root, directory))

    def _rename(self, old: str, new: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.replace(os.path.join(self.root, old), os.path.join(self.root, new))
