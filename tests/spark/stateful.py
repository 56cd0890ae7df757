"""Flows with a state of their own, batch by batch without a query: crashes at each step, and what is in the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.spark.lake import LakeTable
from tidelog.spark.pipeline.batch_state import BatchState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BASE_MS = 1_790_000_000_000


class CrashError(Exception):
    pass


class Failing:
    """A table that takes a batch for good, after which everything dies; or that dies first."""

    def __init__(self, inner: LakeTable, *, before: bool = False) -> None:
        self._inner, self._before = inner, before

    def append(self, frame: DataFrame, **which: Any) -> Any:
        if not self._before:
            self._inner.append(frame, **which)
        raise CrashError


class Dying(BatchState):
    def keep(self, manifest: Any) -> None:
        super().keep(manifest)
        raise CrashError


def attempts(make: Any, tables: Sequence[LakeTable], home: Path) -> Iterator[Any]:
    """Steps (made by `make` with a home and tables) that die: before anything is appended, after each table's append,
    and when the manifest is in place."""
    yield make(home, *(Failing(table, before=True) for table in tables))
    for number in range(len(tables)):
        yield make(home, *(Failing(table) if n == number else table for n, table in enumerate(tables)))
    step = make(home, *tables)
    step.state = lambda query, frame: Dying(home / query, step.terms(frame))
    yield step


def dies(step: Any, frame: DataFrame, batch: int, attempt: str) -> None:
    with pytest.raises(CrashError):
        step.run(frame, "q", batch, attempt)


def read(table: LakeTable, *columns: str) -> list[tuple[Any, ...]]:
    import pyarrow.parquet as pq

    found: list[tuple[Any, ...]] = []
    for file in table.files():
        found += [
            tuple(row[c] for c in columns) for row in pq.ParquetFile(file).read(columns=list(columns)).to_pylist()
        ]
    return found


def moment(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
