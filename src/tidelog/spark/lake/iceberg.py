"""An Iceberg table through the pyiceberg library. The last batch of a query is a property of the table, set in the
transaction that adds the batch's files: snapshots expire, properties stay.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Final

import pyarrow as pa

from tidelog.spark.lake.errors import LakeError, SchemaError
from tidelog.spark.lake.files import DataFile, local_path
from tidelog.spark.lake.iceberg_catalog import Registered
from tidelog.spark.lake.iceberg_history import data_names, expire_before, remove_manifests
from tidelog.spark.lake.iceberg_swap import become, swap_files
from tidelog.spark.lake.locks import held
from tidelog.spark.lake.merging import merge_small
from tidelog.spark.lake.schema import normal
from tidelog.spark.lake.store import Look, Overwrite, require_present
from tidelog.spark.lake.writing import Layout, partition_text

_MARK: Final = "tidelog.batch."
_COMMIT_ATTEMPTS: Final = 10
_EPOCH: Final = date(1970, 1, 1)


class IcebergStore:
    def __init__(self, root: str, catalog: Mapping[str, str] | None = None, identifier: str | None = None) -> None:
        self.root = root
        self._registered = Registered(root, catalog, identifier)

    def schema(self) -> pa.Schema | None:
        table = self._registered.find()
        return None if table is None else self._schema(table)

    def _schema(self, table: Any) -> pa.Schema:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return normal(schema_to_pyarrow(table.schema(), include_field_ids=False))

    def partition_by(self) -> tuple[str, ...]:
        return _columns(self._registered.load())

    def evolve(self, schema: pa.Schema, partition_by: tuple[str, ...]) -> None:
        if small := [field.name for field in schema if pa.types.is_int8(field.type) or pa.types.is_int16(field.type)]:
            raise SchemaError(
                f"column {small[0]!r} is tinyint or smallint, which Iceberg lacks; allowed are int, bigint"
            )
        with held(self.root, "commit"):
            table = self._registered.find()
            if table is None:
                self._registered.create(schema, partition_by)
            elif self.schema() != schema:
                with table.update_schema() as update:
                    update.union_by_name(schema)

    def layout(self, schema: pa.Schema, partition_by: tuple[str, ...]) -> Layout:
        return Layout(
            root=self.root,
            schema=schema,
            partition_by=partition_by,
            data_directory="data",
            keeps_partition_columns=True,
        )

    def recover(self) -> None:
        pass

    def settle(self) -> None:
        """Nothing is left to do: files are synced before the catalog names them, and the catalog syncs itself."""

    def look(self, query: str) -> Look | None:
        table = self._registered.find()
        if table is None:
            return None
        return Look(schema=self._schema(table), partition_by=_columns(table), last_batch=_marks(table).get(query))

    def batches(self) -> dict[str, int]:
        table = self._registered.find()
        return {} if table is None else _marks(table)

    def commit(self, files: Sequence[DataFile], query: str, batch: int) -> bool:
        def add(table: Any) -> bool:
            if _marks(table).get(query, -1) >= batch:
                return False
            require_present(self.root, [(file.path, file.size) for file in files])
            with table.transaction() as change:
                change.add_files(self._paths(files), check_duplicate_files=False)
                change.set_properties(_properties({query: batch}))
            return True

        return self._committed(add)

    def overwrite(self, change: Overwrite) -> bool:
        def swap(table: Any) -> bool:
            if _marks(table).get(change.query, -1) >= change.batch:
                return False
            require_present(self.root, [(file.path, file.size) for file in change.files])
            old = [file for file, told in self._files(table) if change.takes(told)]
            with table.transaction() as transaction:
                if change.schema is not None:
                    become(transaction, self._schema(table), change.schema, _columns(table))
                swap_files(transaction, table.io, old, self._paths(change.files))
                transaction.set_properties(_properties(change.all_marks))
            return True

        return self._committed(swap)

    def files(self) -> list[DataFile]:
        table = self._registered.find()
        return [] if table is None else [told for _, told in self._files(table)]

    def _files(self, table: Any) -> list[tuple[Any, DataFile]]:
        """As the library knows them, and as we do."""
        kinds = {field.name: field.field_type for field in table.spec().partition_type(table.schema()).fields}
        return [(file, self._told(file, _columns(table), kinds)) for file in _live(table)]

    def _paths(self, files: Sequence[DataFile]) -> list[str]:
        return [os.path.join(self.root, file.path) for file in files]

    def open_path(self, path: str) -> str:
        return os.path.join(self.root, path)

    def merge(self, target_bytes: int) -> tuple[int, int]:
        return merge_small(self, target_bytes)

    def forget_before(self, since_ms: int) -> set[str]:
        table = self._registered.find()
        if table is None:
            return set()
        expire_before(table, since_ms)
        table = self._registered.load()
        remove_manifests(table, since_ms)
        return data_names(table)

    def drop(self) -> None:
        self._registered.drop()
        shutil.rmtree(self.root, ignore_errors=True)

    def data_directories(self) -> list[str]:
        return [os.path.join(self.root, "data")]

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> bool:
        def swap(table: Any) -> bool:
            live = {self._relative(file.file_path): file for file in _live(table)}
            if any(file.path not in live for file in old):
                return False
            require_present(self.root, [(file.path, file.size) for file in new])
            with table.transaction() as change:
                swap_files(change, table.io, [live[file.path] for file in old], self._paths(new))
            return True

        return self._committed(swap)

    def _committed(self, attempt: Callable[[Any], bool]) -> bool:
        """What the attempt at a commit says; it is made again on a fresh look when another tool has been quicker."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        with held(self.root, "commit"):
            for left in reversed(range(_COMMIT_ATTEMPTS)):
                try:
                    return attempt(self._registered.load())
                except (CommitFailedException, ValidationException):
                    if not left:
                        raise
        raise AssertionError("unreachable")

    def _told(self, file: Any, columns: tuple[str, ...], kinds: dict[str, Any]) -> DataFile:
        values = [_partition_value(file.partition[place], kind) for place, kind in enumerate(kinds.values())]
        return DataFile(
            path=self._relative(file.file_path),
            size=file.file_size_in_bytes,
            rows=file.record_count,
            partition={name: partition_text(name, value) for name, value in zip(columns, values, strict=True)},
        )

    def _relative(self, path: str) -> str:
        path = local_path(path)
        inside = os.path.relpath(path, self.root)
        return path if inside.startswith("..") else inside


def _marks(table: Any) -> dict[str, int]:
    return {key.removeprefix(_MARK): int(value) for key, value in table.properties.items() if key.startswith(_MARK)}


def _properties(marks: Mapping[str, int]) -> dict[str, str]:
    return {f"{_MARK}{query}": str(batch) for query, batch in marks.items()}


def _columns(table: Any) -> tuple[str, ...]:
    return tuple(table.schema().find_column_name(field.source_id) for field in table.spec().fields)


def _live(table: Any) -> list[Any]:
    tasks = list(table.scan().plan_files())
    if any(task.delete_files for task in tasks):
        raise LakeError(
            f"{table.location()} has delete files, which its data files do not show: read it with pyiceberg"
        )
    return [task.file for task in tasks]


def _partition_value(value: Any, kind: Any) -> Any:
    """Manifests have days since 1970 for a date."""
    from pyiceberg.types import DateType

    if isinstance(kind, DateType) and isinstance(value, int):
        return _EPOCH + timedelta(days=value)
    return value
