"""Where an Iceberg table is registered: a catalog of the user's, or one in SQLite beside the table's directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.locks import held

CATALOG_NAME: Final = "tidelog"
"""A part of the key in a SQL catalog: who opens it under another name finds nothing."""
NAMESPACE: Final = "lake"
CATALOG_FILE: Final = "catalog.db"
_SYNCED: Final = {"py-io-impl": "tidelog.spark.lake.iceberg_io.SyncedFileIO"}
PROPERTIES: Final = {
    "format-version": "2",
    # The library's own retry would not look again whether the batch is there.
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class Registered:
    """One table's entry in its catalog."""

    def __init__(self, root: str, options: Mapping[str, str] | None, identifier: str | None) -> None:
        self._root = root
        self._warehouse = os.path.dirname(root)
        self._options = dict(options) if options else None
        self._identifier = tuple(identifier.split(".")) if identifier else (NAMESPACE, os.path.basename(root))
        if len(self._identifier) < 2:
            raise LakeError(f"the Iceberg table {identifier!r} needs a namespace: namespace.table")
        self._catalog: Any = None

    def find(self) -> Any:
        """The table, as the catalog has it now, or None."""
        from pyiceberg.exceptions import NoSuchTableError

        if self._options is None and not os.path.exists(self._file):
            return None
        try:
            return self._open().load_table(self._identifier)
        except NoSuchTableError:
            return None

    def load(self) -> Any:
        table = self.find()
        if table is None:
            raise LakeError(f"the catalog has no Iceberg table {'.'.join(self._identifier)}")
        return table

    def create(self, schema: pa.Schema, partition_by: tuple[str, ...]) -> None:
        """With its partitioning in one step: a table that lost its second step to a crash would stay unpartitioned."""
        catalog = self._open()
        # pyiceberg looks and then makes it: of two tables that are made in one moment one would fail.
        with held(self._warehouse, "commit"):
            catalog.create_namespace_if_not_exists(self._identifier[:-1])
        change = catalog.create_table_transaction(
            self._identifier, schema=schema, location=self._root, properties=PROPERTIES
        )
        with change, change.update_spec() as spec:
            for column in partition_by:
                spec.add_identity(column)

    def drop(self) -> None:
        """Only the entry: the files are the caller's."""
        if self.find() is not None:
            self._open().drop_table(self._identifier)

    @property
    def _file(self) -> str:
        return os.path.join(self._warehouse, CATALOG_FILE)

    def _open(self) -> Any:
        if self._catalog is not None:
            return self._catalog
        if self._options is not None:
            from pyiceberg.catalog import load_catalog

            self._catalog = load_catalog(**{"name": CATALOG_NAME, **self._options, **_SYNCED})
            return self._catalog
        from pyiceberg.catalog.sql import SqlCatalog
        from sqlalchemy import URL

        # Made by its own rules: a path may have a % or a ? in it.
        url = URL.create("sqlite", database=self._file).render_as_string()
        # Two tables of one warehouse may be made at the same moment, and both would make the catalog's tables.
        with held(self._warehouse, "commit"):
            self._catalog = SqlCatalog(CATALOG_NAME, uri=url, warehouse=f"file://{self._warehouse}", **_SYNCED)
        return self._catalog
