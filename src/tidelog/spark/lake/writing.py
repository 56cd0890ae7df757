"""Where rows become files: in the executors, from Arrow batches, one open file per partition value.

Memory is bounded: rows wait until a row group is worth writing, all of a task's together at most `buffer_bytes_max`,
and no more than `open_files_max` files are open at once; what is beyond closes the one that was written longest ago.
A task that fails or is run twice leaves files that no commit will name.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.runtime.durable import sync_dir, sync_file
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.files import DataFile, hidden_path, new_name, partition_directory
from tidelog.spark.lake.schema import conform
from tidelog.spark.lake.stats import column_stats

MIB: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a table's files are written; travels to the executors."""

    root: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    data_directory: str = ""
    """Below the root; Iceberg's files lie in `data`."""
    keeps_partition_columns: bool = False
    """Iceberg learns a file's partition from the column's bounds; the others from their log or path."""
    exact_directories: bool = False
    hidden: bool = False
    buffer_bytes_max: int = 64 * MIB
    open_files_max: int = 32
    file_bytes_max: int = 512 * MIB

    @property
    def file_schema(self) -> pa.Schema:
        if self.keeps_partition_columns:
            return self.schema
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])


def task_writer(layout: Layout, label: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow: takes the rows of a task, gives the files it made, as one column of JSON."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Files(layout, label) as files:
            for batch in batches:
                files.write(batch)
        texts = [msgspec.json.encode(file).decode() for file in files.written]
        yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["file"])

    return write


class Files:
    def __init__(self, layout: Layout, label: str) -> None:
        self.written: list[DataFile] = []
        self._layout = layout
        self._label = label
        self._open: OrderedDict[tuple[str | None, ...], _OpenFile] = OrderedDict()

    def __enter__(self) -> Files:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        while self._open:
            self._close(next(iter(self._open)), keep=kind is None)

    def write(self, batch: pa.RecordBatch) -> None:
        for values, rows in split(conform(batch, self._layout.schema), self._layout.partition_by):
            self._write_one(values, rows)
        while sum(file.buffered_bytes for file in self._open.values()) > self._layout.buffer_bytes_max:
            max(self._open.values(), key=lambda file: file.buffered_bytes).flush()

    def _write_one(self, values: tuple[str | None, ...], rows: pa.RecordBatch) -> None:
        file = self._open.get(values)
        if file is None:
            while len(self._open) >= self._layout.open_files_max:
                self._close(next(iter(self._open)), keep=True)
            file = self._open[values] = _OpenFile(self._layout, self._label, values)
        self._open.move_to_end(values)
        file.add(rows.select(self._layout.file_schema.names))
        if file.bytes_written >= self._layout.file_bytes_max:
            self._close(values, keep=True)

    def _close(self, values: tuple[str | None, ...], *, keep: bool) -> None:
        file = self._open.pop(values)
        if keep:
            self.written.append(file.close())
        else:
            file.abandon()


class _OpenFile:
    def __init__(self, layout: Layout, label: str, values: tuple[str | None, ...]) -> None:
        self._partition = dict(zip(layout.partition_by, values, strict=True))
        directory = partition_directory(self._partition, layout.partition_by, exact=layout.exact_directories)
        self.path = "/".join(part for part in (layout.data_directory, directory, new_name(label)) if part)
        self._place = os.path.join(layout.root, hidden_path(self.path) if layout.hidden else self.path)
        os.makedirs(os.path.dirname(self._place), exist_ok=True)
        self._root = layout.root
        self._schema = layout.file_schema
        self._flush_bytes = layout.buffer_bytes_max
        self._sink = open(self._place, "xb")  # noqa: SIM115 - closed in close() and abandon()
        self._writer = pq.ParquetWriter(self._sink, self._schema, compression="zstd", write_statistics=True)
        self._waiting: list[pa.RecordBatch] = []
        self.buffered_bytes = 0

    @property
    def bytes_written(self) -> int:
        return self._sink.tell()

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self.buffered_bytes += rows.nbytes
        if self.buffered_bytes > self._flush_bytes:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting, self._schema)
            self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        self._waiting = []
        self.buffered_bytes = 0

    def close(self) -> DataFile:
        self.flush()
        self._writer.close()
        self._sink.close()
        # The commit, and after it Spark's checkpoint, say that the rows are there: a power cut must not take them.
        sync_file(self._place)
        directory = os.path.dirname(self.path)
        while directory:
            sync_dir(os.path.join(self._root, directory))
            directory = os.path.dirname(directory)
        sync_dir(self._root)
        metadata = pq.read_metadata(self._place)
        return DataFile(
            path=self.path,
            size=os.path.getsize(self._place),
            rows=metadata.num_rows,
            partition=self._partition,
            stats=column_stats(metadata, self._schema),
        )

    def abandon(self) -> None:
        try:
            self._writer.close()
        finally:
            self._sink.close()
            os.unlink(self._place)


def split(batch: pa.RecordBatch, columns: Sequence[str]) -> list[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """The batch by its partition values as text; within one the rows keep their order."""
    if not batch.num_rows:
        return []
    if not columns:
        return [((), batch)]
    keys = pa.RecordBatch.from_arrays([batch.column(name) for name in columns], names=list(columns))
    distinct = pa.table(keys).group_by(list(columns)).aggregate([])
    if distinct.num_rows == 1:
        return [(_texts(distinct.to_pylist()[0], columns), batch)]
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in columns])
    rows, keys = batch.take(order), keys.take(order)
    starts = [0, *_changes(keys), batch.num_rows]
    return [
        (_texts(keys.slice(start, 1).to_pylist()[0], columns), rows.slice(start, end - start))
        for start, end in pairwise(starts)
    ]


def _changes(keys: pa.RecordBatch) -> list[int]:
    """Where a row of the sorted keys differs from the one before. Null equals null."""
    differs: Any = None
    for column in keys.columns:
        codes = column.dictionary_encode(null_encoding="encode").indices
        changed = pc.not_equal(codes.slice(1), codes.slice(0, len(codes) - 1))
        differs = changed if differs is None else pc.or_(differs, changed)
    return [int(index) + 1 for index in pc.indices_nonzero(differs).to_pylist()]


def _texts(row: dict[str, Any], columns: Sequence[str]) -> tuple[str | None, ...]:
    return tuple(partition_text(name, row[name]) for name in columns)


def partition_text(column: str, value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if value == "":
        # Delta's log and Hive's directories know no difference between an empty text and null.
        raise LakeError(f"the partition column {column!r} has an empty text in it: give null or a text")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
