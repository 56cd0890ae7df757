"""Small files of a partition into one: which, and how. What becomes of them is the store's to commit.

Rows pass through in Arrow batches, so memory is what the writer buffers. It runs in the driver, without Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.spark.lake.files import DataFile
from tidelog.spark.lake.writing import Files, Layout


class Mergeable(Protocol):
    """A store whose files we merge ourselves."""

    def schema(self) -> pa.Schema | None: ...

    def partition_by(self) -> tuple[str, ...]: ...

    def layout(self, schema: pa.Schema, partition_by: tuple[str, ...]) -> Layout: ...

    def files(self) -> list[DataFile]: ...

    def open_path(self, path: str) -> str: ...

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> bool:
        """One for the other in a commit; False when an old one is not in the table any more."""


def merge_small(store: Mergeable, target_bytes: int) -> tuple[int, int]:
    """(files before, files after) of those that were merged. A group that somebody else was quicker with is left."""
    schema = store.schema()
    if schema is None:
        return 0, 0
    before = after = 0
    layout = store.layout(schema, store.partition_by())
    for group in plan(store.files(), target_bytes):
        merged = merge_bin(layout, group, store.open_path)
        if store.replace(group, merged):
            before, after = before + len(group), after + len(merged)
    return before, after


def plan(files: Sequence[DataFile], target_bytes: int) -> list[list[DataFile]]:
    """Groups of at least two files of one partition with at most target_bytes together. Files of half the target and
    more are left alone: they would be written again and again for little."""
    by_partition: defaultdict[tuple[tuple[str, str | None], ...], list[DataFile]] = defaultdict(list)
    for file in files:
        if file.size < target_bytes // 2:
            by_partition[tuple(sorted(file.partition.items()))].append(file)
    groups: list[list[DataFile]] = []
    for small in by_partition.values():
        group: list[DataFile] = []
        size = 0
        for file in sorted(small, key=lambda file: file.path):
            if group and size + file.size > target_bytes:
                groups.append(group)
                group, size = [], 0
            group.append(file)
            size += file.size
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def merge_bin(layout: Layout, group: Sequence[DataFile], open_path: Callable[[str], str]) -> list[DataFile]:
    """One file with the rows of all (more only if it would grow beyond the layout's bound)."""
    with Files(layout, "merged") as files:
        for file in group:
            source = pq.ParquetFile(open_path(file.path))
            try:
                for batch in source.iter_batches():
                    files.write(with_partition(batch, file.partition, layout.schema))
            finally:
                source.close()
    return files.written


def with_partition(batch: pa.RecordBatch, partition: dict[str, str | None], schema: pa.Schema) -> pa.RecordBatch:
    """The columns that only the path or the log knows, put back where the file lacks them."""
    arrays: list[Any] = list(batch.columns)
    names = list(batch.schema.names)
    for name, text in partition.items():
        if name not in names:
            arrays.append(constant(text, schema.field(name).type, batch.num_rows))
            names.append(name)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def constant(text: str | None, kind: pa.DataType, length: int) -> pa.Array:
    if text is None:
        return pa.nulls(length, kind)
    return pa.repeat(pa.scalar(text, pa.string()).cast(kind), length)
