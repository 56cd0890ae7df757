"""What comes in the place of a table's files: which partitions are meant, and the files of another table taken over."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.runtime.durable import sync_dir, sync_file
from tidelog.spark.lake.errors import DamagedError, LakeError, SchemaError
from tidelog.spark.lake.files import DataFile, hidden_path, new_name, partition_directory
from tidelog.spark.lake.stats import column_stats
from tidelog.spark.lake.store import Overwrite, Store
from tidelog.spark.lake.writing import Layout, partition_text

_LOOKS: Final = 20


def partitions(
    where: Mapping[str, Iterable[object]] | None, partition_by: Sequence[str]
) -> dict[str, frozenset[str | None]]:
    asked = {}
    for column, values in (where or {}).items():
        if column not in partition_by:
            raise LakeError(f"the table is partitioned by ({', '.join(partition_by)}), not by {column!r}")
        if isinstance(values, str | bytes):
            raise LakeError(f"{column!r}: give a list of values, not the text {values!r}")
        asked[column] = frozenset(partition_text(column, value) for value in values)
    return asked


def require_inside(change: Overwrite) -> None:
    """Rows outside of what they replace would be there twice after another batch has replaced what they belong to."""
    for file in change.files:
        if not change.takes(file):
            found = ", ".join(f"{column}={file.partition[column]}" for column in change.where)
            raise LakeError(f"the frame has rows in {found}, which is not among the partitions to be replaced")


def of_table(store: Store, other: Store, query: str, batch: int) -> Overwrite:
    """The other table's state of this moment, its files already under this one's directory."""
    schema, known = other.schema(), store.schema()
    if schema is None:
        if known is None:
            raise LakeError(f"there is a table neither in {store.root} nor in {other.root}")
        return Overwrite(query=query, batch=batch, files=())
    partition_by = other.partition_by()
    if known is None:
        store.evolve(schema, partition_by)
    elif store.partition_by() != partition_by:
        there, here = ", ".join(partition_by), ", ".join(store.partition_by())
        raise SchemaError(f"{other.root} is partitioned by ({there}), the table in {store.root} by ({here})")
    marks, files = _moment(other)
    return Overwrite(
        query=query,
        batch=batch,
        files=_taken_over(other, files, store.layout(schema, partition_by), f"b{batch}-{query[:8]}"),
        marks=marks,
        schema=None if known is None or known == schema else schema,
    )


def _moment(store: Store) -> tuple[dict[str, int], list[DataFile]]:
    """Last batches and files that belong together: with a batch in between, its rows would come twice or never."""
    for _ in range(_LOOKS):
        marks, files = store.batches(), store.files()
        if store.batches() == marks:
            return marks, files
    raise LakeError(f"the table in {store.root} is written to all the time: stop its queries first")


def _taken_over(other: Store, files: Sequence[DataFile], layout: Layout, label: str) -> list[DataFile]:
    taken = []
    for file in files:
        directory = partition_directory(file.partition, layout.partition_by, exact=layout.exact_directories)
        path = "/".join(part for part in (layout.data_directory, directory, new_name(label)) if part)
        place = os.path.join(layout.root, hidden_path(path) if layout.hidden else path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        _link(other.open_path(file.path), place)
        taken.append(_described(place, path, file, layout))
    directories = {layout.root}
    for file in taken:
        inside = os.path.dirname(file.path)
        while inside:
            directories.add(os.path.join(layout.root, inside))
            inside = os.path.dirname(inside)
    for directory in sorted(directories, reverse=True):
        sync_dir(directory)
    return taken


def _link(source: str, place: str) -> None:
    try:
        os.link(source, place)
    except FileNotFoundError:
        raise DamagedError(f"{source} is gone; its rows are lost") from None
    except OSError:
        # Another file system, or one without links.
        shutil.copyfile(source, place)
        sync_file(place)
    # As old as the rows it would be an orphan to be removed before it is committed.
    os.utime(place)


def _described(place: str, path: str, file: DataFile, layout: Layout) -> DataFile:
    metadata = pq.read_metadata(place)
    names = set(metadata.schema.to_arrow_schema().names)
    # A file that was written before a column came lacks it.
    columns = pa.schema([field for field in layout.file_schema if field.name in names])
    return DataFile(
        path=path,
        size=os.path.getsize(place),
        rows=metadata.num_rows,
        partition=file.partition,
        stats=column_stats(metadata, columns),
    )
