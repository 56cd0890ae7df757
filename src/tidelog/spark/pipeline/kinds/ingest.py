"""ingest: topics into a table, record coordinates and all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from tidelog.spark.pipeline.batch_state import StateError
from tidelog.spark.pipeline.decoding import Decode, decoded
from tidelog.spark.pipeline.kinds.kind import Given, Kind
from tidelog.spark.pipeline.letters.options import DeadLetters, check_flow, read_dead_letters
from tidelog.spark.pipeline.model import Flow, Pipeline
from tidelog.spark.pipeline.progress import NEWEST
from tidelog.spark.pipeline.section import Section
from tidelog.spark.pipeline.sinks import AppendSink, Sink, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.spark.audit import Outlet
    from tidelog.spark.link import Link
    from tidelog.spark.pipeline.plans import Plans


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest(Flow):
    """Topics into a table, record coordinates and all."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    starting: Literal["earliest", "latest"] = "earliest"
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    headers: bool = False
    fail_on_data_loss: bool = True
    max_records: int | None = None
    max_bytes: int | None = None
    commit_group: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    decode: Decode | None = None
    event_time: str | None = None  # a column or an expression; the record's timestamp where it gives nothing
    dead_letters: DeadLetters | None = None

    @property
    def topics_written(self) -> tuple[str, ...]:
        return () if self.dead_letters is None else (self.dead_letters.topic,)

    def takes(self, topic: str) -> bool:
        """Whether it reads that topic, if there is one."""
        if self.pattern is None:
            return topic in self.topics
        try:
            return re.fullmatch(self.pattern, topic) is not None
        except re.error:
            return False  # its own fault says so


def read(given: Given) -> Ingest:
    section = given.section
    topics = section.texts("topics")
    pattern = section.text("pattern")
    if section.has("topics") == section.has("pattern"):
        section.fault((), "name either 'topics', such as topics: [orders], or a 'pattern' for them")
    flow = Ingest(
        name=given.name,
        table=given.table,
        **given.common.options(),
        topics=topics,
        pattern=pattern,
        starting=section.choice("starting", ("earliest", "latest"), "earliest"),
        isolation=section.choice("isolation", ("read_committed", "read_uncommitted"), "read_committed"),
        headers=section.flag("headers", False),
        fail_on_data_loss=section.flag("fail_on_data_loss", True),
        max_records=section.count("max_records", None),
        max_bytes=section.size("max_bytes", None),
        commit_group=section.text("commit_group"),
        kafka={**given.kafka, **section.pairs("kafka")},
        decode=_decode(section, topics),
        event_time=section.text("event_time"),
        dead_letters=read_dead_letters(section),
    )
    check_flow(section, flow)
    if flow.max_records is not None and flow.max_bytes is not None:
        section.fault(("max_bytes",), "give either 'max_records' or 'max_bytes'")
    return flow


def _decode(section: Section, topics: tuple[str, ...]) -> Decode | None:
    given = section.has("decode")
    inner = section.section("decode")
    if not given:
        return None
    inner.need("wire", "json")
    wire: Literal["json", "confluent"] = inner.choice("wire", ("json", "confluent"), "json")
    decode = Decode(
        wire=wire,
        column=inner.choice("column", ("value", "key"), "value"),
        schema=inner.text("schema"),
        mode=inner.choice("mode", ("permissive", "failfast"), "permissive"),
    )
    if wire == "confluent":
        decode = replace(
            decode,
            registry=inner.text("registry"),
            subject=inner.text("subject"),
            format=inner.choice("format", ("avro", "json", "protobuf"), "avro"),
        )
        if decode.schema is None and decode.registry is None:
            inner.fault((), "needs a 'registry', such as registry: http://127.0.0.1:8081, or a 'schema'")
        elif decode.schema is None and decode.subject is None:
            if len(topics) == 1:
                decode = replace(decode, subject=f"{topics[0]}-{decode.column}")  # where serializers put it
            else:
                inner.fault((), "needs a 'subject', whose schema the payloads of several topics are read by")
    else:
        inner.need("schema", '"id BIGINT, amount DOUBLE"')
    inner.done()
    return decode


def stream(plans: Plans, flow: Ingest, committing: bool) -> DataFrame:
    """Of a flow with dead letters its own query gets the records of its topics and of the retry topic as they are, and
    judges them in its sink; others get those that can be decoded and break no rule, retries aside."""
    records = _observed(plans.records(flow, committing), flow.name)
    if flow.dead_letters is None:
        return rows_of(records, flow)
    if committing:
        return records
    from tidelog.spark.pipeline.letters.judging import unbroken

    return unbroken(rows_of(records, flow), flow.dead_letters, decodes=flow.decode is not None)


def rows_of(records: DataFrame, flow: Ingest) -> DataFrame:
    """The rows of the table."""
    return _with_date(decoded(records, flow.decode), flow.event_time)


def source_options(pipeline: Pipeline, flow: Ingest, *, retries: bool = False) -> dict[str, str]:
    """The options of the data source. `retries`: with the flow's retry topic, and all that a letter needs."""
    options = {f"kafka.{name}": value for name, value in flow.kafka.items()}
    options["kafka.bootstrap.servers"] = pipeline.bootstrap_servers
    topics, pattern = flow.topics, flow.pattern or ""
    if retries and flow.dead_letters is not None:
        topics = (*topics, flow.dead_letters.retry_topic) if topics else ()
        pattern = f"(?:{pattern})|{re.escape(flow.dead_letters.retry_topic)}"
    options |= {"subscribe": ",".join(topics)} if topics else {"subscribePattern": pattern}
    options["startingOffsets"] = flow.starting
    options["isolation"] = flow.isolation
    options["includeHeaders"] = str(flow.headers or (retries and flow.dead_letters is not None)).lower()
    options["failOnDataLoss"] = str(flow.fail_on_data_loss).lower()
    if flow.max_records is not None:
        options["maxOffsetsPerTrigger"] = str(flow.max_records)
    if flow.max_bytes is not None:
        options["maxBytesPerTrigger"] = str(flow.max_bytes)
    return options


def _observed(frame: DataFrame, name: str) -> DataFrame:
    """With the newest record's time in each progress of whatever reads it, before a query may drop the column."""
    from pyspark.sql import functions as F

    return frame.observe(NEWEST + name, F.max(F.unix_millis("timestamp")).alias("ms"))


def _with_date(frame: DataFrame, event_time: str | None) -> DataFrame:
    from pyspark.sql import functions as F

    time = F.col("timestamp")
    if event_time is not None:
        # A text that is no time must not stop the flow.
        time = F.coalesce(F.expr(event_time).try_cast("timestamp"), time)
    return frame.withColumn("event_date", F.to_date(time))


def check(flow: Ingest, frame: DataFrame) -> None:
    """The conditions of dead letters are analysed on the stream, as the batches will be."""
    if flow.dead_letters is not None:
        from tidelog.spark.pipeline.letters.judging import check_rules

        check_rules(frame, flow.dead_letters)


def resumes(flow: Ingest, pipeline: Pipeline) -> None:
    """Letters may wait in topics that the changed flow would not read."""
    from tidelog.spark.pipeline.letters.checkpoints import query_of

    query = query_of(pipeline.work / "checkpoints" / flow.name)
    if query is None:
        return
    if flow.dead_letters is not None:
        from tidelog.spark.pipeline.letters.sink import decisions_of

        decisions_of(flow, pipeline, query).last()
    elif (pipeline.work / "letters" / flow.name / query).exists():
        raise StateError(
            "the flow had 'dead_letters', and its checkpoint has their retry topic, where records may wait; keep them, "
            "give the changed flow another name, or start it anew without its checkpoint and table"
        )


def sink(flow: Ingest, pipeline: Pipeline) -> Sink:
    resumes(flow, pipeline)
    if flow.dead_letters is not None:
        from tidelog.spark.pipeline.letters.sink import LetterSink

        return LetterSink(flow, pipeline)
    return AppendSink(flow)


def outlets(flow: Ingest, pipeline: Pipeline, link: Link, ingest: str) -> Sequence[Outlet]:
    from tidelog.spark.audit import Outlet

    lake = Outlet("lake", table_of(flow.table))
    if flow.dead_letters is None:
        return [lake]
    from tidelog.spark.pipeline.letters.outlets import DeadOnes, Retrying

    dead = DeadOnes(link, flow, pipeline)
    return [lake, Outlet("dead letters", dead), Outlet("retrying", Retrying(link, flow, pipeline, (lake.table, dead)))]


KIND: Final = Kind(
    name="ingest", flow=Ingest, read=read, stream=stream, sink=sink, check=check, resumes=resumes, outlets=outlets
)
