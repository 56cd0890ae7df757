"""What a query does with a batch, exactly once, and the care for its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tidelog.kernel.ports import Clock
from tidelog.spark.pipeline.model import Flow, Maintenance, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.spark.lake import LakeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a flow knows of itself after a batch."""

    rows: int  # that this run has added to the table
    late: int | None = None
    watermark_ms: int | None = None
    aside: Mapping[str, int] = field(default_factory=dict)
    """Rows that went elsewhere in the flow's life, by a word for where: duplicates, unmatched."""
    dead: Mapping[str, int] | None = None  # dead letters by reason, since the flow's first batch
    retrying: int | None = None  # records that wait for another attempt


class Sink(Protocol):
    def write(self, frame: DataFrame, query: str, batch: int, attempt: str) -> Written: ...

    def tables(self) -> list[LakeTable]: ...


@runtime_checkable
class Waking(Protocol):
    """A sink that has something to do at a time, also when nothing new comes."""

    def starting(self, clock: Clock) -> None:
        """Before its query starts."""

    def look(self) -> None:
        """A few times a second while its query runs; must not wait for anything."""


def table_of(table: Table) -> LakeTable:
    from tidelog.spark.lake import open_table

    Path(table.path).parent.mkdir(parents=True, exist_ok=True)
    return open_table(table.path, table.format, partition_by=table.partition_by)


class AppendSink:
    def __init__(self, flow: Flow) -> None:
        self._table = table_of(flow.table)
        self._rows = 0

    def write(self, frame: DataFrame, query: str, batch: int, attempt: str) -> Written:
        self._rows += self._table.append(frame, query=query, batch=batch).rows
        return Written(rows=self._rows)

    def tables(self) -> list[LakeTable]:
        return [self._table]


class Upkeep:
    """Small files merged and orphans removed, every so many batches or so often, between two batches of the flow."""

    def __init__(self, rules: Maintenance, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock
        self._batches = 0
        self._last_s = clock.monotonic_s()

    def is_due(self) -> bool:
        """Ask once after each batch."""
        self._batches += 1
        rules = self._rules
        by_batches = rules.batches > 0 and self._batches >= rules.batches
        by_time = rules.every_ms > 0 and (self._clock.monotonic_s() - self._last_s) * 1000 >= rules.every_ms
        return by_batches or by_time

    def run(self, tables: list[LakeTable]) -> None:
        self._batches = 0
        self._last_s = self._clock.monotonic_s()
        for table in tables:
            table.merge_small_files(target_bytes=self._rules.target_bytes)
            table.remove_orphans(older_than_s=self._rules.orphans_ms / 1000)
