"""The commits of a Parquet table: what its files are, and which batch of which query came last.

One JSON file per commit, `_tidelog/00000000000000000007.json`, written whole under the commit lock; every so often a
checkpoint with all of the state, after which older commits are removed. A reader needs no lock: it lists, reads, and
starts again if a newer checkpoint took away what it had listed.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa

from tidelog.runtime.durable import replace_file, sync_dir
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.files import DataFile
from tidelog.spark.lake.locks import BOOKS

CHECKPOINT_EVERY: Final = 50
_READ_ATTEMPTS: Final = 20


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    time_ms: int
    query: str | None = None
    batch: int | None = None
    marks: dict[str, int] = {}
    """Of other queries, whose rows came with these files from another table."""
    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    schema: str | None = None
    """Arrow's, in base64; `columns` says the same for people."""
    columns: dict[str, str] | None = None
    partition_by: tuple[str, ...] | None = None
    forget: tuple[str, ...] = ()
    """Removed files that are gone from the disk too."""


class State(msgspec.Struct, kw_only=True):
    version: int = -1
    schema: str = ""
    partition_by: tuple[str, ...] = ()
    files: dict[str, DataFile] = {}
    batches: dict[str, int] = {}
    removed: dict[str, int] = {}
    """When files that are no longer the table's were taken out of it."""
    last: Commit | None = None

    def replay(self, commit: Commit) -> None:
        self.version += 1
        self.last = commit
        if commit.schema is not None:
            self.schema = commit.schema
        if commit.partition_by is not None:
            self.partition_by = commit.partition_by
        for path in commit.remove:
            del self.files[path]
            self.removed[path] = commit.time_ms
        for path in commit.forget:
            self.removed.pop(path, None)
        self.files.update({file.path: file for file in commit.add})
        self.batches.update(commit.marks)
        if commit.query is not None and commit.batch is not None:
            self.batches[commit.query] = commit.batch

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema)))


def schema_commit(schema: pa.Schema, partition_by: Sequence[str], time_ms: int) -> Commit:
    return with_schema(Commit(time_ms=time_ms, partition_by=tuple(partition_by)), schema)


def with_schema(commit: Commit, schema: pa.Schema) -> Commit:
    text = base64.b64encode(schema.serialize()).decode()
    return msgspec.structs.replace(commit, schema=text, columns={field.name: str(field.type) for field in schema})


class ParquetLog:
    def __init__(self, root: str) -> None:
        self._directory = os.path.join(root, BOOKS)

    def read(self) -> State | None:
        for _ in range(_READ_ATTEMPTS):
            try:
                return self._read()
            except FileNotFoundError:
                continue
        raise LakeError(f"the commits in {self._directory} change faster than they can be read")

    def append(self, state: State, commit: Commit) -> None:
        """Only under the commit lock, with the state read under it."""
        state.replay(commit)
        replace_file(self._path(state.version), msgspec.json.encode(commit))
        if state.version and state.version % CHECKPOINT_EVERY == 0:
            replace_file(self._path(state.version, checkpoint=True), msgspec.json.encode(state))
            self._tidy(state.version)

    def settle(self) -> None:
        """A commit's file is synced before it gets its name; who gave it the name may have died before that was."""
        sync_dir(self._directory)

    def _read(self) -> State | None:
        commits, checkpoints = self._list()
        state = State()
        if checkpoints:
            state = msgspec.json.decode(self._bytes(self._path(checkpoints[-1], checkpoint=True)), type=State)
        while (version := state.version + 1) in commits:
            state.replay(msgspec.json.decode(self._bytes(self._path(version)), type=Commit))
        if commits and state.version < max(commits):
            # Listed while a checkpoint was written: the commits before it went, the checkpoint was not seen.
            raise FileNotFoundError(self._path(state.version + 1))
        return state if state.version >= 0 else None

    def _list(self) -> tuple[set[int], list[int]]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return set(), []
        commits = {int(name[:20]) for name in names if name.endswith(".json") and name[:-5].isdigit()}
        checkpoints = sorted(int(name[:20]) for name in names if name.endswith(".checkpoint"))
        return commits, checkpoints

    def _tidy(self, checkpoint: int) -> None:
        commits, checkpoints = self._list()
        for version in commits:
            # The last commit stays: recovery finishes it by its own file list.
            if version < checkpoint:
                os.unlink(self._path(version))
        for version in checkpoints:
            if version < checkpoint:
                os.unlink(self._path(version, checkpoint=True))

    def _path(self, version: int, *, checkpoint: bool = False) -> str:
        return os.path.join(self._directory, f"{version:020}{'.checkpoint' if checkpoint else '.json'}")

    @staticmethod
    def _bytes(path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()
