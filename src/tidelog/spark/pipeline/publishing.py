"""What a flow publishes: rows of a batch as records of a topic, once, with the query and the batch to know it by.

Each record says in its headers which flow, query and batch it is of, so that it is told from those of other writers,
and what a batch has written from what the next one is writing. The rows of a key go through one task, in the order
that the batch has them: the sink's tasks write beside each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from tidelog.protocol.topic_names import INTERNAL_TOPICS, complaint_about_name
from tidelog.spark.pipeline.kinds.kind import PlanError
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.section import Section

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidelog.client.cluster import Cluster

FLOW_HEADER: Final = "tidelog.flow"
QUERY_HEADER: Final = "tidelog.query"
BATCH_HEADER: Final = "tidelog.batch"
MARKS: Final = (FLOW_HEADER, QUERY_HEADER, BATCH_HEADER)
ALL_COLUMNS: Final = "to_json(struct(*))"
_ORDER: Final = "_tidelog_order"
_HEADERS: Final = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """The topic where it is missing; -1 leaves a number to the broker."""

    partitions: int = -1
    replication_factor: int = -1
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    topic: str
    key: str | None = None  # an expression; none: what the flow's kind says
    value: str | None = None
    where: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    create: Creation = field(default_factory=Creation)
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets


def read_publication(section: Section, kafka: Mapping[str, str]) -> Publication:
    """The keys of a publish flow, or of `publish:` in a flow with a table."""
    section.need("topic", "alerts")
    topic = section.text("topic") or ""
    if topic and (complaint_about_name(topic) is not None or topic in INTERNAL_TOPICS):
        section.fault(("topic",), f"{topic!r} is no name of a topic; it takes letters, digits, '.', '_' and '-'")
    headers = section.pairs("headers")
    for name in headers:
        if name in MARKS:
            section.fault(("headers", name), "is set by the pipeline itself")
    return Publication(
        topic=topic,
        key=section.text("key"),
        value=section.text("value"),
        where=section.text("where"),
        headers=tuple(headers.items()),
        create=_creation(section.section("create")),
        delivery=section.choice("delivery", ("exactly_once", "at_least_once"), "exactly_once"),
        kafka={**kafka, **section.pairs("kafka")},
    )


def _creation(section: Section) -> Creation:
    partitions = section.count("partitions", -1)
    replication_factor = section.count("replication.factor", -1)
    names = [name for name in section.names if name not in ("partitions", "replication.factor")]
    configs = [(name, text) for name in names if (text := section.text(name)) is not None]
    return Creation(
        partitions=-1 if partitions is None else partitions,
        replication_factor=-1 if replication_factor is None else replication_factor,
        configs=tuple(configs),
    )


def records(publication: Publication, frame: DataFrame, marks: Mapping[str, str]) -> DataFrame:
    """The columns that the sink takes: key (where there is one), value and headers, those that mark it first."""
    from pyspark.sql import functions as F

    rows = frame if publication.where is None else frame.where(publication.where)
    key = publication.key or ("key" if "key" in frame.columns else None)
    value = publication.value or ("value" if "value" in frame.columns else ALL_COLUMNS)
    wanted = {"value": value, **({} if key is None else {"key": key})}
    made = rows.select(
        *(F.expr(expression).alias(f"_{name}") for name, expression in wanted.items()),
        *(F.expr(expression).alias(f"_header_{n}") for n, (_, expression) in enumerate(publication.headers)),
    )
    ours = [(name, F.lit(text)) for name, text in marks.items()]
    given = [(name, _text(made, f"_header_{n}")) for n, (name, _) in enumerate(publication.headers)]
    headers = [F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in (*ours, *given)]
    return made.select(
        *(_text(made, f"_{name}").alias(name) for name in wanted), F.array(*headers).cast(_HEADERS).alias("headers")
    )


def _text(frame: DataFrame, column: str) -> Column:
    """Texts and bytes as they are; what has fields as JSON, numbers and times as their text."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

    kind = frame.schema[column].dataType
    if isinstance(kind, StructType | ArrayType | MapType):
        return F.to_json(column)
    return F.col(column) if isinstance(kind, StringType | BinaryType) else F.col(column).cast("string")


def together(frame: DataFrame) -> DataFrame:
    """The rows of a key in one task, in the batch's order, which is the log's where nothing has shuffled them yet."""
    from pyspark.sql import functions as F

    if "key" not in frame.columns:
        return frame
    numbered = frame.withColumn(_ORDER, F.monotonically_increasing_id())
    return numbered.repartition("key").sortWithinPartitions(_ORDER).drop(_ORDER)


def check_publication(publication: Publication, frame: DataFrame) -> None:
    """Analyses what would be written, and the sink's settings; nothing is computed."""
    from tidelog.spark.sink.options import parse_sink_options

    parse_sink_options(sink_options(publication, "127.0.0.1:9092", ("q", 0)), stream=False)
    records(publication, frame, {})


def sink_options(publication: Publication, servers: str, batch: tuple[str, int]) -> dict[str, str]:
    """(who writes, number of the batch): the sink writes such a pair once."""
    options = {f"kafka.{name}": text for name, text in publication.kafka.items()}
    options |= {"kafka.bootstrap.servers": servers, "topic": publication.topic, "delivery": publication.delivery}
    if publication.delivery == "exactly_once":
        options |= {"txnAppId": batch[0], "txnVersion": str(batch[1])}
    return options


def client_settings(publication: Publication) -> dict[str, str]:
    """Without those that only the sink knows."""
    from tidelog.spark.sink.options import KAFKA_BY_NAME

    return {name: text for name, text in publication.kafka.items() if name.lower() not in KAFKA_BY_NAME}


class Outlet:
    """Writes batches of one flow into its topic."""

    def __init__(self, publication: Publication, flow: str, pipeline: Pipeline) -> None:
        self._publication = publication
        self._flow = flow
        self._servers = pipeline.bootstrap_servers
        self._ensure_topic()

    def write(self, frame: DataFrame, query: str, batch: int) -> int:
        """Once per (query, batch) with exactly_once; how many rows the batch has."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        counted = Observation(f"published_{self._flow}")
        marks = dict(zip(MARKS, (self._flow, query, str(batch)), strict=True))
        rows = records(self._publication, frame, marks).observe(counted, F.count(F.lit(1)).alias("rows"))
        # Not the query's id alone: something else of the flow may be written under that one.
        options = sink_options(self._publication, self._servers, (f"{query}.publish", batch))
        together(rows).write.format("tidelog").mode("append").options(**options).save()
        return int(counted.get["rows"])

    def _ensure_topic(self) -> None:
        from tidelog.spark.link import Link

        with Link({**client_settings(self._publication), "bootstrap.servers": self._servers}) as link:
            if not link.existing([self._publication.topic]):
                link.ask(self._create)

    async def _create(self, cluster: Cluster) -> None:
        from tidelog.client.errors import BrokerError
        from tidelog.client.topics import NewTopic, create_topics
        from tidelog.protocol.errors import ErrorCode

        wanted, topic = self._publication.create, self._publication.topic
        new = NewTopic(
            name=topic,
            partitions=wanted.partitions,
            replication_factor=wanted.replication_factor,
            configs=dict(wanted.configs),
        )
        (result,) = (await create_topics(cluster, [new])).values()
        if not isinstance(result, BrokerError) or result.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            await cluster.topic(topic, auto_create=True)
            return
        if result.code in (
            ErrorCode.INVALID_CONFIG,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            ErrorCode.POLICY_VIOLATION,
        ):
            raise PlanError(f"the broker does not create the topic {topic}: {result}")
        raise result
