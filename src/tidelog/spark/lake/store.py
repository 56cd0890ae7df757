"""What a format must be able to do for LakeTable. Three implementations: delta.py, iceberg.py, parquet.py.

A store keeps no state between calls but where its table is; it is asked from several threads and processes at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from tidelog.spark.lake.errors import FilesLostError
from tidelog.spark.lake.files import DataFile
from tidelog.spark.lake.writing import Layout


@dataclass(frozen=True, kw_only=True)
class Overwrite:
    """What one commit puts in the place of what the table has."""

    query: str
    batch: int
    files: Sequence[DataFile]
    where: Mapping[str, frozenset[str | None]] = field(default_factory=dict)
    """Whose files go: by partition column the values, as text. Every file without it."""
    marks: Mapping[str, int] = field(default_factory=dict)
    """Last batches of other queries, whose rows come with the files."""
    schema: pa.Schema | None = None
    """The table's columns from then on, if they change."""

    def takes(self, file: DataFile) -> bool:
        return all(file.partition[column] in values for column, values in self.where.items())

    @property
    def all_marks(self) -> dict[str, int]:
        return {**self.marks, self.query: self.batch}


@dataclass(frozen=True, kw_only=True)
class Look:
    """What is asked of a table before a batch is written to it, of one moment: an opening costs more than the rest."""

    schema: pa.Schema
    partition_by: tuple[str, ...]
    last_batch: int | None
    """Of the query that looks. A commit looks again: the batch may come in meanwhile."""


class Store(Protocol):
    root: str

    def schema(self) -> pa.Schema | None:
        """All columns, partition columns too; None while there is no table."""

    def partition_by(self) -> tuple[str, ...]:
        """Of the table that is there."""

    def evolve(self, schema: pa.Schema, partition_by: tuple[str, ...]) -> None:
        """Make the table, or add the columns it lacks. May be called again."""

    def layout(self, schema: pa.Schema, partition_by: tuple[str, ...]) -> Layout: ...

    def recover(self) -> None:
        """Finish what the last commit left undone when its process died."""

    def settle(self) -> None:
        """After this a power cut takes nothing of what is committed: who committed it may have died before it was
        synced, and the next one is about to tell Spark that it is done."""

    def look(self, query: str) -> Look | None:
        """None while there is no table."""

    def batches(self) -> dict[str, int]:
        """The last batch of every query."""

    def commit(self, files: Sequence[DataFile], query: str, batch: int) -> bool:
        """Files and (query, batch) in one atomic step. False, and nothing is changed, when the batch is there."""

    def overwrite(self, change: Overwrite) -> bool:
        """The same with old files taken out in that step. Which they are is judged by the table as it is then: what was
        merged or appended meanwhile goes with the rest."""

    def files(self) -> list[DataFile]:
        """What is committed now."""

    def open_path(self, path: str) -> str:
        """Where a committed file lies."""

    def merge(self, target_bytes: int) -> tuple[int, int]:
        """Small files into larger ones; how many went and how many came."""

    def forget_before(self, since_ms: int) -> set[str]:
        """Give up what the table was before then; the names of data files that are its own, or were at any time since.
        Under the commit lock."""

    def drop(self) -> None:
        """Away with the table, also with what is left of one whose removal was broken off."""

    def data_directories(self) -> list[str]:
        """Where data files, and so orphans, can lie."""


def require_present(root: str, paths: Sequence[tuple[str, int]]) -> None:
    """Under the commit lock, which a removal of orphans holds too: what is there now is there when it is committed."""
    for path, size in paths:
        try:
            found = os.path.getsize(os.path.join(root, path))
        except FileNotFoundError:
            raise FilesLostError(
                f"{path} is gone before its commit: were orphans removed that were younger than this batch?"
            ) from None
        if found != size:
            raise FilesLostError(f"{path} has {found} bytes instead of {size}")
