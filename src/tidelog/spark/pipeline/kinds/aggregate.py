"""aggregate: measures by window of event time; what comes after its window was closed goes to a table beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from tidelog.spark.pipeline.faults import allowed
from tidelog.spark.pipeline.kinds.columns import COLUMN, beside, named
from tidelog.spark.pipeline.kinds.kind import Given, Kind, PlanError
from tidelog.spark.pipeline.model import Flow, Pipeline, Table
from tidelog.spark.pipeline.publishing import ALL_COLUMNS, Outlet, Publication, check_publication, read_publication
from tidelog.spark.pipeline.section import Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.spark.pipeline.aggregating import Aggregating
    from tidelog.spark.pipeline.batch_state import Terms
    from tidelog.spark.pipeline.plans import Plans
    from tidelog.spark.pipeline.proof import Proof
    from tidelog.spark.pipeline.recomputing import Recomputed
    from tidelog.spark.pipeline.sinks import Sink

# first and last are by event time; the distinct ones are exact, then by a sketch.
FUNCTIONS: Final = ("count", "sum", "min", "max", "avg", "first", "last", "count_distinct", "approx_count_distinct")
RESERVED: Final = ("window_start", "window_end", "event_date")
_MEASURE: Final = re.compile(r"\s*([A-Za-z_]+)\s*(?:\((.*)\)\s*)?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    kind: Literal["tumbling", "sliding", "session"]
    size_ms: int  # a session's gap
    step_ms: int = 0  # only of sliding windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    name: str
    function: str
    argument: str  # a column or an expression; "*" only for count


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Flow):
    """Measures by window of event time; what comes after its window was closed goes to a table beside it."""

    reads: str
    time: str
    watermark_ms: int
    window: Window
    by: tuple[tuple[str, str], ...]  # (column of the table, expression)
    measures: tuple[Measure, ...]
    late: Table
    publish: Publication | None = None  # closed windows, as they go to the table

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.reads,)

    @property
    def aside(self) -> Mapping[str, Table]:
        return {"late": self.late}

    @property
    def topics_written(self) -> tuple[str, ...]:
        return () if self.publish is None else (self.publish.topic,)

    @property
    def unreadable(self) -> str | None:
        return (
            f"{self.name!r} is an aggregate, whose windows go to its table (and to a topic by its key 'publish'); "
            "read what it reads"
        )


def read(given: Given) -> Aggregate:
    section = given.section
    section.need("from", "orders")
    section.need("watermark", "10m")
    by = named(section, "by")
    measures = read_measures(section, "measures")
    for column in (*(column for column, _ in by), *(measure.name for measure in measures)):
        if column in RESERVED or [c for c, _ in by].count(column) + [m.name for m in measures].count(column) > 1:
            section.fault((), f"the column {column!r} would be in the table twice")
    return Aggregate(
        name=given.name,
        table=given.table,
        **given.common.options(),
        reads=section.text("from") or "",
        time=section.text("time") or "timestamp",
        watermark_ms=section.duration_ms("watermark", 0, 0),
        window=_window(section),
        by=by,
        measures=measures,
        late=beside(given.table, section, "late"),
        publish=_publish(section, by, given.kafka),
    )


def _publish(section: Section, by: tuple[tuple[str, str], ...], kafka: Mapping[str, str]) -> Publication | None:
    """A window is one key of the topic, whichever columns its measures are called."""
    given = section.has("publish")
    inner = section.section("publish")
    if not given:
        return None
    found = read_publication(inner, kafka)
    inner.done()
    identity = ", ".join(["window_start", *(f"`{column}`" for column, _ in by)])
    return replace(found, key=found.key or f"to_json(struct({identity}))", value=found.value or ALL_COLUMNS)


def _window(section: Section) -> Window:
    section.need("window", "{tumbling: 1m}")
    given = section.has("window")
    inner = section.section("window")
    sizes = {kind: inner.duration_ms(kind, 0) for kind in ("tumbling", "sliding", "session")}
    named = [kind for kind in sizes if inner.has(kind)]
    step_ms = inner.duration_ms("every", 0) if "sliding" in named else 0
    inner.done()
    if given and len(named) != 1:
        inner.fault((), "must be one of {tumbling: 1m}, {sliding: 10m, every: 1m} and {session: 5m}")
    if named == ["sliding"]:
        inner.need("every", "1m")
        if step_ms > sizes["sliding"]:
            inner.fault(("every",), "must not be longer than 'sliding': records between two windows would be in none")
        return Window(kind="sliding", size_ms=sizes["sliding"], step_ms=step_ms)
    if named == ["session"]:
        return Window(kind="session", size_ms=sizes["session"])
    return Window(kind="tumbling", size_ms=sizes["tumbling"])


def read_measures(section: Section, key: str) -> tuple[Measure, ...]:
    section.need(key, "{orders: count, amount: sum(payload.amount)}")
    measures = []
    for name, text in section.pairs(key).items():
        match = _MEASURE.fullmatch(text)
        function, argument = (match[1].lower(), (match[2] or "").strip()) if match else ("", "")
        if not COLUMN.fullmatch(name):
            section.fault((key, name), "is no name of a column")
        if function not in FUNCTIONS:
            section.fault((key, name), f"{text!r} is no measure; {allowed(function, FUNCTIONS)}")
        elif function == "count":
            argument = argument or "*"
        elif not argument or argument == "*":
            section.fault((key, name), f"{function} needs a column: {function}(payload.amount)")
        measures.append(Measure(name=name, function=function, argument=argument))
    return tuple(measures)


def stream(plans: Plans, flow: Aggregate, committing: bool) -> DataFrame:
    """Those it aggregates."""
    return plans.stream(flow.reads)


def check(flow: Aggregate, frame: DataFrame) -> None:
    """The aggregation is analysed on the stream, as the batches will be; nothing is computed."""
    from tidelog.spark.pipeline.aggregating import LATE_COLUMNS

    taken = [column for column in LATE_COLUMNS if column in frame.columns]
    if taken:
        raise PlanError(f"{flow.reads!r} has a column {taken[0]!r}, which the table of late rows needs for itself")
    step = _analysing(flow)
    closed = step.closed(step.partial(step.spread(frame)))
    if flow.publish is not None:
        check_publication(flow.publish, closed)


def keeps(flow: Aggregate, frame: DataFrame) -> Terms:
    return _analysing(flow).terms(frame)


def _analysing(flow: Aggregate) -> Aggregating:
    from pathlib import Path

    from tidelog.spark.pipeline.aggregating import Aggregating

    nothing: Any = None
    return Aggregating(flow, Path(), nothing, nothing)


def sink(flow: Aggregate, pipeline: Pipeline) -> Sink:
    from tidelog.spark.pipeline.aggregating import WindowSink

    outlet = None if flow.publish is None else Outlet(flow.publish, flow.name, pipeline)
    return WindowSink(flow, pipeline.work, outlet)


def proof(anew: Recomputed, flow: Aggregate) -> Proof:
    from tidelog.spark.pipeline.proving_windows import prove_windows

    proved = prove_windows(anew, flow)
    if flow.publish is None:
        return proved
    from tidelog.spark.pipeline.proving_publish import prove_published, with_published

    # What the table has is proved, so what must be published is what the table has.
    closed = anew.rows(flow.table)
    return proved if closed is None else with_published(proved, prove_published(anew, closed, flow.publish))


KIND: Final = Kind(
    name="aggregate", flow=Aggregate, read=read, stream=stream, sink=sink, check=check, keeps=keeps, proof=proof
)
