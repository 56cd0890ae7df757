"""dedupe: the first row of each key within the watermark; the others go to a table beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from tidelog.spark.pipeline.kinds.columns import COORDINATES, beside, named
from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.kinds.kind import Given, Kind, PlanError
from tidelog.spark.pipeline.model import Flow, Pipeline, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.spark.audit import Outlet
    from tidelog.spark.link import Link
    from tidelog.spark.pipeline.batch_state import Terms
    from tidelog.spark.pipeline.deduping import Deduping
    from tidelog.spark.pipeline.plans import Plans
    from tidelog.spark.pipeline.proof import Proof
    from tidelog.spark.pipeline.recomputing import Recomputed
    from tidelog.spark.pipeline.sinks import Sink


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedupe(Flow):
    reads: str
    by: tuple[tuple[str, str], ...]  # (column of the key, expression)
    time: str
    watermark_ms: int
    duplicates: Table
    late: Table

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.reads,) if self.reads else ()

    @property
    def aside(self) -> Mapping[str, Table]:
        return {"duplicates": self.duplicates, "late": self.late}

    @property
    def unreadable(self) -> str | None:
        return (
            f"{self.name!r} is a dedupe: which rows are first is decided batch by batch with a state of its own, "
            "and another query's batches would decide otherwise; read what it reads"
        )


def read(given: Given) -> Dedupe:
    section = given.section
    section.need("from", "orders")
    section.need("by", "[payload.event_id]")
    section.need("watermark", "10m")
    return Dedupe(
        name=given.name,
        table=given.table,
        **given.common.options(),
        reads=section.text("from") or "",
        by=named(section, "by"),
        time=section.text("time") or "timestamp",
        watermark_ms=section.duration_ms("watermark", 0, 0),
        duplicates=beside(given.table, section, "duplicates"),
        late=beside(given.table, section, "late"),
    )


def stream(plans: Plans, flow: Dedupe, committing: bool) -> DataFrame:
    """Those it looks at."""
    return plans.stream(flow.reads)


def check(flow: Dedupe, frame: DataFrame) -> None:
    from tidelog.spark.pipeline.deduping import RESERVED

    lacking = [column for column in COORDINATES if column not in frame.columns]
    if lacking:
        raise PlanError(
            f"{flow.reads!r} has no column {lacking[0]!r}; which row is the first is told by {', '.join(COORDINATES)}"
        )
    taken = [column for column in RESERVED if column in frame.columns]
    if taken:
        raise PlanError(f"{flow.reads!r} has a column {taken[0]!r}, which the tables of a dedupe need for themselves")
    step = _analysing(flow)
    step.judged(step.keyed(frame), None)


def keeps(flow: Dedupe, frame: DataFrame) -> Terms:
    return _analysing(flow).terms(frame)


def _analysing(flow: Dedupe) -> Deduping:
    from pathlib import Path

    from tidelog.spark.pipeline.deduping import Deduping

    nothing: Any = None
    return Deduping(flow, Path(), nothing, nothing, nothing)


def sink(flow: Dedupe, pipeline: Pipeline) -> Sink:
    from tidelog.spark.pipeline.deduping import DedupeSink

    return DedupeSink(flow, pipeline.work)


def outlets(flow: Dedupe, pipeline: Pipeline, link: Link, ingest: str) -> Sequence[Outlet]:
    from tidelog.spark.audit import Outlet
    from tidelog.spark.pipeline.sinks import table_of

    if not isinstance(pipeline.flows[flow.reads], Ingest):
        return []  # a query may drop or multiply rows
    tables = {"lake": flow.table, "duplicates": flow.duplicates, "late": flow.late}
    return [Outlet(name, table_of(table)) for name, table in tables.items()]


def proof(anew: Recomputed, flow: Dedupe) -> Proof:
    """Of a query's rows: each is in one of the tables, as it is."""
    from tidelog.spark.pipeline.proving import prove_frame

    expected = anew.stream(flow.reads)
    tables = [rows.select(*expected.columns) for table in flow.tables if (rows := anew.rows(table)) is not None]
    return prove_frame(anew, expected, reduce(lambda one, other: one.unionAll(other), tables) if tables else None)


KIND: Final = Kind(
    name="dedupe",
    flow=Dedupe,
    read=read,
    stream=stream,
    sink=sink,
    check=check,
    keeps=keeps,
    outlets=outlets,
    proof=proof,
)
