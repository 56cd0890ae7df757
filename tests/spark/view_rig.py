"""For the tests of views: records of a keyed topic, what they come to in plain Python, and a process that dies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tidelog.spark.lake import LakeTable
from tidelog.spark.pipeline import Pipeline, ingest
from tidelog.spark.pipeline.kinds.view import View
from tidelog.spark.pipeline.plans import Plans
from tidelog.spark.pipeline.python import Draft
from tidelog.spark.pipeline.sinks import table_of
from tidelog.spark.pipeline.views.kept import Kept
from tidelog.spark.pipeline.views.viewing import ViewSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
BASE_MS = 1_790_000_000_000


@dataclass(frozen=True)
class Record:
    key: bytes | None
    value: bytes | None
    partition: int
    offset: int
    time_ms: int

    @property
    def json(self) -> Any:
        return None if self.value is None else json.loads(self.value)


def latest(records: Sequence[Record]) -> list[Record]:
    """The rules of docs/views.md once more: a key's records in order, deletes too."""
    found: list[tuple[Any, ...]] = []
    seen: dict[tuple[bytes | None, int], int] = {}
    for record in sorted(records, key=lambda record: (record.partition, record.offset)):
        at = (record.key, record.partition)
        seen[at] = max(seen.get(at, 0), record.time_ms)
        found.append((seen[at], record.partition, record.offset, record))
    return [record for *_, record in sorted(found, key=lambda one: one[:3])]


def view(records: Sequence[Record]) -> dict[bytes, Record]:
    last = {record.key: record for record in latest(records)}
    return {key: record for key, record in last.items() if key is not None and record.value is not None}


def pipeline_of(tmp_path: Path, draft: Draft, schema: str | None = None) -> Pipeline:
    decode = None if schema is None else {"wire": "json", "schema": schema}
    return Pipeline.of(
        name="shop",
        bootstrap_servers="h:1",
        lake=str(tmp_path / "lake"),
        work=str(tmp_path / "work"),
        flows={"events": ingest(topics="events", decode=decode), "view": draft},
    )


class Flowing:
    """A view that is given batches by hand, as its query would be."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.given: list[Record] = []
        flow = pipeline.flows["view"]
        assert isinstance(flow, View)
        self.flow = flow

    def frame(self, records: Sequence[Record]) -> DataFrame:
        rows = [
            (r.key, r.value, "events", r.partition, r.offset, datetime.fromtimestamp(r.time_ms / 1000, UTC), 0)
            for r in records
        ]
        made = self.spark.createDataFrame(rows, SCHEMA)
        return Plans(self.spark, self.pipeline, source=lambda flow, committing: made).stream("view")

    def write(self, records: Sequence[Record], batch: int, query: str = "q") -> Any:
        self.given += [record for record in records if record not in self.given]
        return ViewSink(self.flow, self.pipeline.work).write(self.frame(records), query, batch, "a")

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        return read(table_of(self.flow.table), *columns)


def read(table: LakeTable, *columns: str) -> list[tuple[Any, ...]]:
    found = [row for file in table.files() for row in pq.ParquetFile(file).read(columns=list(columns)).to_pylist()]
    return sorted((tuple(row[column] for column in columns) for row in found), key=repr)


class Died(BaseException):
    """Not an Exception: nothing between here and the test may take it for an error to handle."""


STEPS: list[tuple[Any, str]] = [(LakeTable, "replace"), (LakeTable, "append"), (Kept, "note")]


@contextmanager
def death(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[Callable[[], int]]:
    """Dies before the at-th half of a step: each counts twice, before it and after it. Gives how many there were."""
    moment = 0

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            nonlocal moment
            for is_done in (False, True):
                moment += 1
                if moment == at:
                    raise Died
                if not is_done:
                    result = function(*arguments, **keywords)
            return result

        return call

    with monkeypatch.context() as patch:
        for owner, name in STEPS:
            patch.setattr(owner, name, watched(getattr(owner, name)))
        yield lambda: moment
