"""view: one row per key, as the changes in a keyed topic have left it; or what the events of each key add up to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from tidelog.spark.pipeline.kinds.aggregate import Measure, read_measures
from tidelog.spark.pipeline.kinds.columns import beside, named
from tidelog.spark.pipeline.kinds.kind import Given, Kind
from tidelog.spark.pipeline.model import Flow, Maintenance, Pipeline, Table
from tidelog.spark.pipeline.publishing import Outlet, Publication, check_publication
from tidelog.spark.pipeline.section import Section
from tidelog.spark.pipeline.views.publishing import DELETED, published, read_changelog, sent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.spark.pipeline.plans import Plans
    from tidelog.spark.pipeline.proof import Proof
    from tidelog.spark.pipeline.recomputing import Recomputed
    from tidelog.spark.pipeline.sinks import Sink

BUCKET: Final = "bucket"
COORDINATES: Final = ("topic", "partition", "offset", "timestamp")
RESERVED: Final = (*COORDINATES, BUCKET, "op", "changed_at", "event_date", "aside_reason")
BUCKETS_MAX: Final = 4096
# Every batch leaves the old files of the buckets it has changed: a week of them is more than most disks have.
UPKEEP: Final = Maintenance(batches=20, orphans_ms=3_600_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class View(Flow):
    reads: str
    key: tuple[tuple[str, str], ...]  # (column of the table, expression)
    envelope: Literal["plain", "debezium"]
    columns: tuple[tuple[str, str], ...]  # of the value; none: all that it has
    deletes: str | None  # a condition; None: where the value is null
    fold: tuple[Measure, ...]
    time: str
    buckets: int
    remember_ms: int
    changes: Table | None
    unapplied: Table
    publish: Publication | None = None  # the changes of the view

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.reads,)

    @property
    def aside(self) -> Mapping[str, Table]:
        kept = {} if self.changes is None else {"changes": self.changes}
        return {**kept, "unapplied": self.unapplied}

    @property
    def topics_written(self) -> tuple[str, ...]:
        return () if self.publish is None else (self.publish.topic,)

    @property
    def unreadable(self) -> str | None:
        return (
            f"{self.name!r} is a view, which is a table and no stream (its key 'publish' sends its changes to a "
            "topic); read what it reads"
        )


def read(given: Given) -> View:
    section = given.section
    section.need("from", "orders")
    key = named(section, "key") or (("key", "key"),)
    columns = named(section, "columns")
    fold = read_measures(section, "fold") if section.has("fold") else ()
    envelope: Literal["plain", "debezium"] = section.choice("envelope", ("plain", "debezium"), "plain")
    deletes = section.text("deletes")
    beside_it = replace(given.table, partition_by=("event_date",))
    changes = beside(beside_it, section, "changes")
    if not section.flag("history", False):
        if section.has("changes"):
            section.fault(("changes",), "there is such a table only with history: true")
        history = None
    else:
        history = changes
    options = given.common.options()
    if options["maintenance"] == Maintenance():
        options["maintenance"] = UPKEEP
    flow = View(
        name=given.name,
        table=replace(given.table, partition_by=(BUCKET,)),
        **options,
        reads=section.text("from") or "",
        key=key,
        envelope=envelope,
        columns=columns,
        deletes=deletes,
        fold=fold,
        time=section.text("time") or "timestamp",
        buckets=section.count("buckets", 16) or 16,
        remember_ms=section.duration_ms("remember_deletes", 7 * 86_400_000, 0),
        changes=history,
        unapplied=beside(beside_it, section, "unapplied"),
        publish=read_changelog(section, [column for column, _ in key], given.kafka),
    )
    _judge(section, flow)
    return flow


def _judge(section: Section, flow: View) -> None:
    if flow.buckets > BUCKETS_MAX:
        section.fault(("buckets",), f"at most {BUCKETS_MAX}; a bucket is a folder of the table")
    if flow.fold and flow.columns:
        section.fault(("columns",), "a fold has the columns of its measures; leave 'columns' out")
    if flow.envelope == "debezium":
        for key, is_given in (("fold", bool(flow.fold)), ("deletes", flow.deletes is not None)):
            if is_given:
                section.fault((key,), "Debezium's envelopes say what is changed and what is deleted; leave it out")
    keys = [column for column, _ in flow.key]
    others = [column for column, _ in flow.columns] + [measure.name for measure in flow.fold]
    for column in dict.fromkeys([*keys, *others]):
        where = ("key",) if column in keys else ("fold",) if flow.fold else ("columns",)
        if column in RESERVED:
            section.fault(where, f"the column {column!r} is one of the table's own; give it another name")
        elif column in keys and column.startswith("_"):
            section.fault(where, f"the column {column!r} begins with _, as those of the state do; give it another name")
        elif [*keys, *others].count(column) > 1:
            section.fault(where, f"the column {column!r} would be in the table twice")


def stream(plans: Plans, flow: View, committing: bool) -> DataFrame:
    """The records with its changes."""
    return plans.stream(flow.reads)


def check(flow: View, frame: DataFrame) -> None:
    """All that a batch does is analysed on the stream; nothing is computed."""
    from tidelog.spark.pipeline.views.changes import Reading
    from tidelog.spark.pipeline.views.steps import steps_of

    changes = Reading(flow).changes(frame)
    steps = steps_of(flow)
    rows = steps.rows(steps.state(changes, None), changes, None)
    if flow.publish is not None:
        from pyspark.sql import functions as F

        check_publication(sent(flow.publish), published(flow.publish, rows.withColumn(DELETED, F.lit(False))))


def resumes(flow: View, pipeline: Pipeline) -> None:
    from tidelog.spark.pipeline.views.kept import Kept

    Kept(flow, pipeline.work).require_same()


def sink(flow: View, pipeline: Pipeline) -> Sink:
    from tidelog.spark.pipeline.views.viewing import ViewSink

    outlet = None if flow.publish is None else Outlet(sent(flow.publish), flow.name, pipeline)
    return ViewSink(flow, pipeline.work, outlet)


def proof(anew: Recomputed, flow: View) -> Proof:
    from tidelog.spark.pipeline.views.proving import prove_view

    return prove_view(anew, flow)


KIND: Final = Kind(
    name="view", flow=View, read=read, stream=stream, sink=sink, check=check, resumes=resumes, proof=proof
)
