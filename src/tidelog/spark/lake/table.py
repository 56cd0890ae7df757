"""A lake table that a stream appends to, or replaces parts of, exactly once, whatever its format.

Owns the order of things: look whether the batch is there, check the schema, let the executors write, commit. What a
commit is and where it is kept is the store's (delta.py, iceberg.py, parquet.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tidelog.spark.lake import orphans, reading, replacing
from tidelog.spark.lake.errors import LakeError, SchemaError
from tidelog.spark.lake.files import DataFile, table_directory
from tidelog.spark.lake.frames import Snapshot, snapshot
from tidelog.spark.lake.locks import held
from tidelog.spark.lake.schema import check_partitioning, from_spark, reconcile
from tidelog.spark.lake.store import Look, Overwrite, Store
from tidelog.spark.lake.tasks import map_in_arrow
from tidelog.spark.lake.writing import MIB, Layout, task_writer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Format = Literal["delta", "parquet", "iceberg"]
FORMATS: Final = ("delta", "parquet", "iceberg")
WEEK_S: Final = 7 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class Appended:
    rows: int
    files: int
    skipped: bool
    """The batch was in the table already."""


@dataclass(frozen=True, kw_only=True)
class Replaced:
    rows: int
    files: int
    skipped: bool
    """The batch was in the table already."""


@dataclass(frozen=True, kw_only=True)
class Merged:
    before: int
    after: int


@dataclass(frozen=True, kw_only=True)
class Description:
    uri: str
    format: str
    exists: bool
    files: int
    bytes: int
    rows: int
    batches: dict[str, int]
    """The last batch of each query, by query id."""


def open_table(
    uri: str,
    format: Format | str,
    *,
    partition_by: Sequence[str] = ("event_date",),
    catalog: Mapping[str, str] | None = None,
    identifier: str | None = None,
) -> LakeTable:
    """The table in a directory that driver and executors see, by the same path. It is made by the first batch.

    catalog, identifier: only for Iceberg, pyiceberg's catalog properties and `namespace.table`; without them a catalog
    in SQLite is kept beside the table's directory.
    """
    if format not in FORMATS:
        raise LakeError(f"format is {format!r}; allowed are {', '.join(FORMATS)}")
    if format != "iceberg" and (catalog or identifier):
        raise LakeError(f"catalog and identifier are for iceberg, not for {format}")
    if isinstance(partition_by, str):
        raise LakeError(f"partition_by is a list of columns, not the text {partition_by!r}")
    root = table_directory(uri)
    store: Store
    if format == "delta":
        from tidelog.spark.lake.delta import DeltaStore

        store = DeltaStore(root)
    elif format == "iceberg":
        from tidelog.spark.lake.iceberg import IcebergStore

        store = IcebergStore(root, catalog, identifier)
    else:
        from tidelog.spark.lake.parquet import ParquetStore

        store = ParquetStore(root)
    return LakeTable(store, format, tuple(partition_by))


def query_id(frame: DataFrame) -> str:
    """The id of the streaming query that gave this frame to its foreachBatch. It lives in the checkpoint: one with a
    new checkpoint begins at batch 0 again and must have another id than the old one, so a name will not do."""
    found = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not found:
        raise LakeError("this frame is not a batch of a streaming query: give append(query=...) an id")
    return str(found)


class LakeTable:
    def __init__(self, store: Store, format: Format, partition_by: tuple[str, ...]) -> None:
        self.uri = store.root
        self.format = format
        self._store = store
        self._partition_by = partition_by

    def __repr__(self) -> str:
        return f"LakeTable({self.uri!r}, {self.format!r})"

    def append(self, frame: DataFrame, *, query: str, batch: int) -> Appended:
        """Once per (query, batch), however often it is called: after a crash, by two drivers, with other splits.

        One Spark job, in which the frame is computed once. Batches of a query come in order, as Spark's do: one that is
        older than the last is taken for a repetition.
        """
        found = self._look(query, batch)
        if self._is_done(found, batch):
            return Appended(rows=0, files=0, skipped=True)
        layout = self._prepare(frame, found)
        files = _write(frame, layout, label=f"b{batch}-{query[:8]}")
        # An empty batch leaves no mark: repeated, it is empty again, or was never written.
        committed = not files or self._store.commit(files, query, batch)
        rows = sum(file.rows for file in files) if committed else 0
        return Appended(rows=rows, files=len(files) if committed else 0, skipped=not committed)

    def replace(
        self, frame: DataFrame, *, query: str, batch: int, where: Mapping[str, Iterable[object]] | None = None
    ) -> Replaced:
        """The frame's rows in the place of all the table has or, with `where`, of what it has in these partitions:
        {column: values}, of several columns only what fits all. Of the frame nothing may lie outside of it.

        One commit, once per (query, batch) as append: a reader finds the old rows or the new ones. The old files stay
        on the disk for their readers, until remove_orphans finds them old enough.
        """
        found = self._look(query, batch)
        if self._is_done(found, batch):
            return Replaced(rows=0, files=0, skipped=True)
        asked = replacing.partitions(where, self._partition_by)
        layout = self._prepare(frame, found)
        files = _write(frame, layout, label=f"b{batch}-{query[:8]}")
        change = Overwrite(query=query, batch=batch, files=files, where=asked)
        replacing.require_inside(change)
        return self._replaced(change)

    def replace_with(self, other: LakeTable, *, query: str, batch: int) -> Replaced:
        """This table becomes what the other one is now, in one commit: its rows, its columns, and the last batches of
        its queries, so that they can go on here. (query, batch) is this commit's own mark, which makes it happen once.

        The other's files are linked into this table's directory, or copied where they cannot be: the other one may go.
        """
        if self.has_batch(query=query, batch=batch):
            return Replaced(rows=0, files=0, skipped=True)
        if other.format != self.format:
            raise LakeError(f"a {self.format} table cannot be replaced with one of format {other.format}")
        return self._replaced(replacing.of_table(self._store, other._store, query, batch))

    def has_batch(self, *, query: str, batch: int) -> bool:
        """Whether the batch, or a later one of its query, is in the table; finishes what a dead writer left undone."""
        return self._is_done(self._look(query, batch), batch)

    def _look(self, query: str, batch: int) -> Look | None:
        if not query or batch < 0:
            raise LakeError(f"query is {query!r} and batch {batch}: a text and a number from 0 on identify a batch")
        self._store.recover()
        return self._store.look(query)

    def _is_done(self, found: Look | None, batch: int) -> bool:
        if found is None or found.last_batch is None or found.last_batch < batch:
            return False
        self._store.settle()
        return True

    def _replaced(self, change: Overwrite) -> Replaced:
        # Not while files are merged: Delta took a merge and a replacement of the same files, one after the other, and
        # the rows that were replaced were back in the merged file.
        with held(self.uri, "maintenance"):
            done = self._store.overwrite(change)
        if not done:
            return Replaced(rows=0, files=0, skipped=True)
        return Replaced(rows=sum(file.rows for file in change.files), files=len(change.files), skipped=False)

    def sink(self) -> Callable[[DataFrame, int], None]:
        """For `writeStream.foreachBatch(table.sink())`."""

        def append_batch(frame: DataFrame, batch: int) -> None:
            self.append(frame, query=query_id(frame), batch=batch)

        return append_batch

    def exists(self) -> bool:
        return self._store.schema() is not None

    def rows(self, prefix: str = "", only: tuple[str, str] | None = None) -> Iterator[pa.RecordBatch]:
        """topic, partition, offset, timestamp of every row that is committed now. None where there is no table yet.

        prefix: of the columns they are in, where a row has those of several records.
        only: (column, text), where rows of several flows are in one table; those that have this text there.
        """
        return reading.coordinates(self._store, prefix, only)

    def count(self) -> int:
        """Rows, by what the commits say of their files."""
        return sum(file.rows for file in self._store.files())

    def files(self) -> list[str]:
        """Paths of the committed data files, for readers of Parquet that should see one state of the table."""
        return [self._store.open_path(file.path) for file in self._store.files()]

    def snapshot(self) -> Snapshot:
        """What is committed now, for `frames.frame_of`."""
        return snapshot(self._store)

    def describe(self) -> Description:
        files = self._store.files()
        return Description(
            uri=self.uri,
            format=self.format,
            exists=self.exists(),
            files=len(files),
            bytes=sum(file.size for file in files),
            rows=sum(file.rows for file in files),
            batches=self._store.batches(),
        )

    def merge_small_files(self, target_bytes: int = 128 * MIB) -> Merged:
        """Files of one partition value into fewer, beside running appends. The old ones stay on the disk for their
        readers, until remove_orphans finds them old enough."""
        if target_bytes < 2:
            raise LakeError(f"target_bytes is {target_bytes}: a size in bytes, from 2 on")
        if not self.exists():
            return Merged(before=0, after=0)
        with held(self.uri, "maintenance"):
            before, after = self._store.merge(target_bytes)
        return Merged(before=before, after=after)

    def remove_orphans(self, older_than_s: float = WEEK_S) -> list[str]:
        """Removes files that were not the table's at any time within the bound, and says which. It is also how far back
        Delta's and Iceberg's old versions can still be read."""
        if older_than_s < 0:
            raise LakeError(f"older_than_s is {older_than_s}: seconds, from 0 on")
        if not self.exists():
            return []
        return orphans.remove_orphans(self._store, older_than_s)

    def drop(self) -> None:
        """The table is gone, with all its files. Nobody may be writing it, and who reads it will fail; no table is no
        error."""
        self._store.drop()

    def partitioned_by(self) -> tuple[str, ...]:
        """As the table has it, or as it will have it."""
        return self._store.partition_by() if self.exists() else self._partition_by

    def _prepare(self, frame: DataFrame, found: Look | None) -> Layout:
        """The table made or widened as the frame needs it, before a file is written; SchemaError if it cannot be."""
        wanted = from_spark(frame.schema)
        check_partitioning(wanted, self._partition_by)
        if found is not None:
            if found.partition_by != self._partition_by:
                there, asked = ", ".join(found.partition_by), ", ".join(self._partition_by)
                raise SchemaError(f"the table in {self.uri} is partitioned by ({there}), not by ({asked})")
            wanted = reconcile(found.schema, wanted)
        if found is None or wanted != found.schema:
            self._store.evolve(wanted, self._partition_by)
        return self._store.layout(wanted, self._partition_by)


def _write(frame: DataFrame, layout: Layout, label: str) -> list[DataFile]:
    rows = map_in_arrow(frame, task_writer(layout, label), "file string").collect()
    return [msgspec.json.decode(row.file, type=DataFile) for row in rows]
