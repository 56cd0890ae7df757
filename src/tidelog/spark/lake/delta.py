"""A Delta table through the deltalake library. The batch is Delta's own application transaction: app id = query id,
version = batch id, as Delta's streaming sink on the JVM has them; deltalake refuses the second of two that race.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.runtime.clock import SystemClock
from tidelog.runtime.durable import sync_dir, sync_file
from tidelog.spark.lake.delta_log import LOG, actions, transactions, unescaped
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.files import DataFile
from tidelog.spark.lake.locks import held
from tidelog.spark.lake.schema import normal
from tidelog.spark.lake.store import Look, Overwrite, require_present
from tidelog.spark.lake.writing import Layout, partition_text

_COMMIT_ATTEMPTS: Final = 10
_CHECKPOINT: Final = ".checkpoint.parquet"
# Each opening reads all commits since the last checkpoint, and an append opens the table more than once: with the
# library's 100 that was half of what an append cost. 10 is Delta's own on the JVM. Each opening also lists the whole
# log: Delta's 30 days are a quarter of a million entries with a batch every 10 s, more than half a second.
_CONFIGURATION: Final = {"delta.checkpointInterval": "10", "delta.logRetentionDuration": "interval 7 days"}


class DeltaStore:
    def __init__(self, root: str) -> None:
        if re.search("%[0-9A-Fa-f]{2}", root):
            raise LakeError(
                f"{root}: deltalake takes %20 and the like in a directory's name for an escape; choose another"
            )
        self.root = root
        # Given a plain path, the library would take a % in it for an escape.
        self._uri = Path(root).as_uri()

    def schema(self) -> pa.Schema | None:
        table = self._find()
        return None if table is None else _schema(table)

    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._load().metadata().partition_columns)

    def evolve(self, schema: pa.Schema, partition_by: tuple[str, ...]) -> None:
        from deltalake import DeltaTable, Schema

        with held(self.root, "commit"):
            table = self._find()
            since = -1 if table is None else table.version()
            wanted = Schema.from_arrow(schema)
            if table is None:
                table = DeltaTable.create(
                    self._uri,
                    schema=wanted,
                    partition_by=list(partition_by),
                    mode="ignore",
                    configuration=_CONFIGURATION,
                )
            known = _schema(table)
            # One that is there is named again when a struct inside of it has grown: the library joins them.
            names = {f.name for f in schema if f.name not in known.names or known.field(f.name).type != f.type}
            if added := [field for field in wanted.fields if field.name in names]:
                table.alter.add_columns(added)
            self._sync_log(since)

    def layout(self, schema: pa.Schema, partition_by: tuple[str, ...]) -> Layout:
        return Layout(root=self.root, schema=schema, partition_by=partition_by)

    def recover(self) -> None:
        pass

    def settle(self) -> None:
        names = os.listdir(os.path.join(self.root, LOG))
        self._sync_log(max((int(name[:20]) for name in names if name.endswith(_CHECKPOINT)), default=0) - 1)

    def look(self, query: str) -> Look | None:
        table = self._find()
        if table is None:
            return None
        return Look(
            schema=_schema(table),
            partition_by=tuple(table.metadata().partition_columns),
            last_batch=table.transaction_version(query),
        )

    def batches(self) -> dict[str, int]:
        """From the log's files: the library tells an application's transaction only to who knows its id."""
        table = self._find()
        return {} if table is None else dict(transactions(self.root, table.version()))

    def commit(self, files: Sequence[DataFile], query: str, batch: int) -> bool:
        def add(table: Any) -> None:
            self._write(table, [self._add(file) for file in files], {query: batch})

        return self._committed(files, query, batch, add)

    def overwrite(self, change: Overwrite) -> bool:
        def swap(table: Any) -> None:
            added = [self._add(file) for file in change.files]
            if change.schema is not None:
                # The library takes all files out by itself, and the columns with them.
                self._write(table, added, change.all_marks, mode="overwrite", schema=change.schema)
            else:
                removed = [_remove(file) for file in self._files(table) if change.takes(file)]
                self._write(table, [*added, *removed], change.all_marks)

        return self._committed(change.files, change.query, change.batch, swap)

    def _committed(self, files: Sequence[DataFile], query: str, batch: int, attempt: Callable[[Any], None]) -> bool:
        from deltalake.exceptions import CommitFailedError

        with held(self.root, "commit"):
            for left in reversed(range(_COMMIT_ATTEMPTS)):
                table = self._load()
                done = table.transaction_version(query)
                if done is not None and done >= batch:
                    return False
                require_present(self.root, [(file.path, file.size) for file in files])
                since = table.version()
                try:
                    attempt(table)
                except CommitFailedError:
                    # Another tool has committed meanwhile; whatever it was, look again.
                    if not left:
                        raise
                    continue
                self._sync_log(since)
                return True
        raise AssertionError("unreachable")

    def _write(
        self, table: Any, actions: list[Any], marks: Mapping[str, int], mode: str = "append", schema: Any = None
    ) -> None:
        from deltalake.transaction import CommitProperties, Transaction

        table.create_write_transaction(
            actions,
            mode=mode,
            schema=table.schema() if schema is None else schema,
            partition_by=table.metadata().partition_columns,
            commit_properties=CommitProperties(app_transactions=[Transaction(*mark) for mark in marks.items()]),
        )

    def files(self) -> list[DataFile]:
        table = self._find()
        return [] if table is None else self._files(table)

    def _files(self, table: Any) -> list[DataFile]:
        if "deletionVectors" in (table.protocol().reader_features or ()):
            raise LakeError(
                f"{self.root} has deletion vectors, which its own files do not show: read it with deltalake"
            )
        columns = table.metadata().partition_columns
        actions = pa.table(table.get_add_actions(flatten=True))
        actions = actions.select(["path", "size_bytes", "num_records", *(f"partition.{name}" for name in columns)])
        return [
            DataFile(
                path=row["path"],
                size=row["size_bytes"],
                rows=self._rows(row),
                partition={name: partition_text(name, row[f"partition.{name}"]) for name in columns},
            )
            for row in actions.to_pylist()
        ]

    def open_path(self, path: str) -> str:
        from urllib.parse import unquote

        plain = os.path.join(self.root, path)
        # The log escapes what other writers, and merging, put into a directory's name.
        return plain if os.path.exists(plain) else os.path.join(self.root, unquote(path))

    def merge(self, target_bytes: int) -> tuple[int, int]:
        """Delta's own: its commit says that no rows change, so appends beside it pass; transactions stay."""
        table = self._find()
        if table is None:
            return 0, 0
        from deltalake.exceptions import CommitFailedError

        before, since = {file.path for file in self.files()}, table.version()
        try:
            done = table.optimize.compact(target_size=target_bytes)
        except CommitFailedError:
            # A replacement took the files out meanwhile: they need no merging any more.
            return 0, 0
        for file in self.files():
            if file.path not in before:
                sync_file(self.open_path(file.path))
        self._sync_log(since)
        return done["numFilesRemoved"], done["numFilesAdded"]

    def forget_before(self, since_ms: int) -> set[str]:
        table = self._find()
        if table is None:
            return set()
        kept = {os.path.basename(path) for path in table.file_uris()}
        for entry in os.scandir(os.path.join(self.root, LOG)):
            if not entry.name.endswith(".json"):
                continue
            with contextlib.suppress(FileNotFoundError):  # a commit meanwhile may take entries that are old enough away
                if entry.stat().st_mtime_ns // 1_000_000 > since_ms:
                    kept.update(_named_by(entry.path))
        return kept

    def drop(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def data_directories(self) -> list[str]:
        return [self.root]

    def _find(self) -> Any:
        """Opened anew each time. A kept one, brought up to date with update_incremental, goes on with the columns of a
        table that another has dropped and made again, and after a commit that costs as much as an opening."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            return DeltaTable(self._uri)
        except DeltaError:
            # Asked only now: it can take as long as an opening. A table that is there and damaged fails once more.
            return DeltaTable(self._uri) if DeltaTable.is_deltatable(self._uri) else None

    def _load(self) -> Any:
        table = self._find()
        if table is None:
            raise LakeError(f"there is no Delta table in {self.root}")
        return table

    def _add(self, file: DataFile) -> Any:
        from deltalake.transaction import AddAction

        low = {name: stats.low for name, stats in file.stats.items() if stats.low is not None}
        high = {name: stats.high for name, stats in file.stats.items() if stats.high is not None}
        nulls = {name: stats.nulls for name, stats in file.stats.items()}
        return AddAction(
            path=file.path,
            size=file.size,
            partition_values=file.partition,
            modification_time=os.stat(os.path.join(self.root, file.path)).st_mtime_ns // 1_000_000,
            data_change=True,
            stats=json.dumps({"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": nulls}),
        )

    def _rows(self, action: dict[str, Any]) -> int:
        if action["num_records"] is not None:
            return int(action["num_records"])
        return int(pq.read_metadata(self.open_path(action["path"])).num_rows)

    def _sync_log(self, since: int) -> None:
        """The library leaves its entry to the page cache; Spark's checkpoint must not outlive it.

        All entries after version `since`: another tool's may lie before ours, and after it. Without asking the library,
        for which it would be another opening.
        """
        directory = os.path.join(self.root, LOG)
        for version in count(since + 1):
            entry = os.path.join(directory, f"{version:020}")
            # A checkpoint too: one that a power cut has emptied would stand in the way of every opening.
            there = [path for path in (f"{entry}.json", f"{entry}{_CHECKPOINT}") if os.path.exists(path)]
            if not there:
                break
            for path in there:
                sync_file(path)
        sync_dir(directory)


def _schema(table: Any) -> pa.Schema:
    return normal(pa.schema(table.schema().to_arrow()))


def _named_by(entry: str) -> set[str]:
    found = (action.get("add") or action.get("remove") for action in actions(entry))
    return {os.path.basename(file["path"]) for file in found if file is not None}


def _remove(file: DataFile) -> Any:
    from deltalake.transaction import RemoveAction

    return RemoveAction(unescaped(file.path), True, SystemClock().wall_ms(), file.size, file.partition)
