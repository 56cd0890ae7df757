"""sql: a query over other flows by name."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.kinds.kind import Given, Kind, PlanError
from tidelog.spark.pipeline.model import Flow, Pipeline
from tidelog.spark.pipeline.sinks import AppendSink, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.spark.pipeline.plans import Plans
    from tidelog.spark.pipeline.proof import Proof
    from tidelog.spark.pipeline.recomputing import Recomputed


@dataclass(frozen=True, slots=True, kw_only=True)
class Sql(Flow):
    """A query over other flows by name."""

    query: str
    reads: tuple[str, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.reads

    @property
    def inputs_in_order(self) -> bool:
        return False


def read(given: Given) -> Sql:
    section = given.section
    section.need("from", "orders")
    section.need("query", "SELECT * FROM orders WHERE ...")
    query = section.text("query") or ""
    reads = section.texts("from")
    for read in reads:
        if query and not re.search(rf"\b{re.escape(read)}\b", query):
            section.fault(("query",), f"the query does not read {read!r}, which 'from' names")
    partition_by = section.texts("partition_by")
    return Sql(
        name=given.name,
        table=replace(given.table, partition_by=partition_by),
        **given.common.options(),
        query=query,
        reads=reads,
    )


def stream(plans: Plans, flow: Sql, committing: bool) -> DataFrame:
    return plans.query(flow.query, flow.reads)


def check(flow: Sql, frame: DataFrame) -> None:
    missing = [column for column in flow.table.partition_by if column not in frame.columns]
    if missing:
        raise PlanError(f"partition_by names {missing[0]}, which is not among {', '.join(frame.columns)}")


def sink(flow: Sql, pipeline: Pipeline) -> Sink:
    return AppendSink(flow)


def proof(anew: Recomputed, flow: Sql) -> Proof:
    from tidelog.spark.pipeline.proving import prove_rows

    return prove_rows(anew, anew.stream(), flow.table)


KIND: Final = Kind(
    name="sql", flow=Sql, read=read, stream=stream, sink=sink, check=check, blamed=("query",), proof=proof
)
