"""publish: the rows of another flow into a topic, through the exactly-once sink. It has no table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.kinds.kind import Given, Kind
from tidelog.spark.pipeline.model import Flow, Pipeline, Table
from tidelog.spark.pipeline.publishing import Outlet, Publication, check_publication, read_publication
from tidelog.spark.pipeline.sinks import Sink, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.spark.lake import LakeTable
    from tidelog.spark.pipeline.plans import Plans
    from tidelog.spark.pipeline.proof import Proof
    from tidelog.spark.pipeline.recomputing import Recomputed


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish(Flow):
    """The rows of another flow into a topic."""

    reads: str
    publication: Publication

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.reads,)

    @property
    def tables(self) -> tuple[Table, ...]:
        return ()

    @property
    def topics_written(self) -> tuple[str, ...]:
        return (self.publication.topic,)

    @property
    def unreadable(self) -> str | None:
        topic = self.publication.topic
        return f"{self.name!r} publishes to the topic {topic!r}; read what it reads, or ingest the topic"


def read(given: Given) -> Publish:
    section = given.section
    section.need("from", "orders")
    for name in ("table", "format"):
        if section.has(name):
            section.fault((name,), "a publish flow has no table")
    return Publish(
        name=given.name,
        table=given.table,
        **given.common.options(),
        reads=section.text("from") or "",
        publication=read_publication(section, given.kafka),
    )


def stream(plans: Plans, flow: Publish, committing: bool) -> DataFrame:
    return plans.stream(flow.reads)


def check(flow: Publish, frame: DataFrame) -> None:
    check_publication(flow.publication, frame)


class PublishSink:
    def __init__(self, flow: Publish, pipeline: Pipeline) -> None:
        self._outlet = Outlet(flow.publication, flow.name, pipeline)
        self._rows = 0

    def write(self, frame: DataFrame, query: str, batch: int, attempt: str) -> Written:
        self._rows += self._outlet.write(frame, query, batch)
        return Written(rows=self._rows)

    def tables(self) -> list[LakeTable]:
        return []


def sink(flow: Publish, pipeline: Pipeline) -> Sink:
    return PublishSink(flow, pipeline)


def proof(anew: Recomputed, flow: Publish) -> Proof:
    from tidelog.spark.pipeline.proving_publish import prove_published

    return prove_published(anew, anew.stream(), flow.publication)


KIND: Final = Kind(name="publish", flow=Publish, read=read, stream=stream, sink=sink, check=check, proof=proof)
