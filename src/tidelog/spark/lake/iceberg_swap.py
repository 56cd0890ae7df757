"""Data files of an Iceberg table for others, in a transaction of pyiceberg's: for merging and for replacing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from tidelog.spark.lake.errors import SchemaError
from tidelog.spark.lake.schema import reconcile

_NAME_MAPPING: Final = "schema.name-mapping.default"


def swap_files(change: Any, io: Any, old: Sequence[Any], new: Sequence[str]) -> None:
    """In the transaction `change`: the files `old`, as the library knows them, for those at the paths `new`."""
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    if not old and not new:
        return
    if change.table_metadata.name_mapping() is None:
        # Files that come without Iceberg's field ids are read by their columns' names.
        change.set_properties({_NAME_MAPPING: change.table_metadata.schema().name_mapping.model_dump_json()})
    with change.update_snapshot().overwrite() as files:
        _leave_out_the_dead(files)
        for file in old:
            files.delete_data_file(file)
        for path in new:
            files.append_data_file(parquet_file_to_data_file(io, change.table_metadata, path))


def _leave_out_the_dead(files: Any) -> None:
    """Manifests that only tell of files taken out before: pyiceberg 0.12 carries them from overwrite to overwrite, and
    reads every one of them each time."""
    existing = files._existing_manifests
    files._existing_manifests = lambda: [
        found for found in existing() if found.has_added_files() or found.has_existing_files()
    ]


def become(change: Any, known: pa.Schema, wanted: pa.Schema, partition_by: Sequence[str]) -> None:
    """In the transaction: the table's columns become the wanted ones. One whose type cannot grow into the wanted type
    is dropped and made anew, under the same name."""
    dropped = [field.name for field in known if not _grows(field, wanted)]
    if fixed := [name for name in dropped if name in partition_by]:
        raise SchemaError(f"column {fixed[0]!r} is in the table's partitioning and must keep its type")
    if dropped:
        with change.update_schema(allow_incompatible_changes=True) as update:
            for name in dropped:
                update.delete_column((name,))
    with change.update_schema() as update:
        update.union_by_name(wanted)


def _grows(field: pa.Field, wanted: pa.Schema) -> bool:
    if field.name not in wanted.names:
        return False
    other = wanted.field(field.name)
    try:
        return bool(reconcile(pa.schema([field]), pa.schema([other])).field(0).type == other.type)
    except SchemaError:
        return False
