"""join: two streams by key and an interval of event time, or a stream with a table as it is at each batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tidelog.spark.pipeline.kinds.columns import beside
from tidelog.spark.pipeline.kinds.kind import Given, Kind
from tidelog.spark.pipeline.model import Flow, Format, Pipeline, Table
from tidelog.spark.pipeline.section import Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.spark.audit import Outlet
    from tidelog.spark.link import Link
    from tidelog.spark.pipeline.batch_state import Terms
    from tidelog.spark.pipeline.plans import Plans
    from tidelog.spark.pipeline.proof import Proof
    from tidelog.spark.pipeline.recomputing import Recomputed
    from tidelog.spark.pipeline.sinks import Sink

Side = Literal["left", "right"]
SIDES: Final[tuple[Side, Side]] = ("left", "right")
TYPES: Final = ("inner", "left", "right", "full")
FORMATS: Final[tuple[Format, ...]] = ("delta", "parquet", "iceberg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """How far the right row's time may lie from the left one's, and how late rows may be."""

    times: Mapping[Side, str]
    before_ms: int
    after_ms: int
    watermark_ms: int
    watermark_of: Literal["slowest", "fastest"]

    def reach_ms(self, side: Side) -> int:
        """How long after a row's time a partner of it may be."""
        return self.after_ms if side == "left" else self.before_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """A table that is read as it is at each batch: of another flow, or any in the lake."""

    flow: str | None = None
    table: Table | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Flow):
    left: str
    right: str | Lookup
    on: tuple[tuple[str, str], ...]  # (expression of the left, of the right)
    type: Literal["inner", "left", "right", "full"]
    interval: Interval | None  # None with a table
    unmatched: Table
    late: Table

    @property
    def inputs(self) -> tuple[str, ...]:
        sides = (self.left, self.right) if isinstance(self.right, str) else (self.left,)
        return tuple(side for side in sides if side)

    @property
    def inputs_in_order(self) -> bool:
        return True

    def input_key(self, name: str) -> str:
        return self.side_of(name)

    def side_of(self, name: str) -> Side:
        """Of a flow that it reads; it never reads one on both sides."""
        return "left" if name == self.left else "right"

    @property
    def looked_up(self) -> tuple[str, ...]:
        return (self.right.flow,) if isinstance(self.right, Lookup) and self.right.flow else ()

    @property
    def aside(self) -> Mapping[str, Table]:
        return {} if self.interval is None else {"unmatched": self.unmatched, "late": self.late}

    def keeps_unmatched(self, side: Side) -> bool:
        """Whether rows without a partner are part of the result, and not only accounted for."""
        return self.type in (side, "full")

    @property
    def unreadable(self) -> str | None:
        return f"{self.name!r} is a join, whose pairs go to its table; read what it reads"


def read(given: Given) -> Join:
    section = given.section
    section.need("left", "orders")
    section.need("right", "payments")
    section.need("on", "{payload.id: payload.order_id}")
    right = _right(section, given)
    on = tuple(section.pairs("on").items()) if section.is_section("on") else tuple((x, x) for x in section.texts("on"))
    streams = isinstance(right, str)
    if streams and section.text("left") == right:
        section.fault(("right",), "is the left side too; make two flows of it, such as two sql flows")
    return Join(
        name=given.name,
        table=given.table,
        **given.common.options(),
        left=section.text("left") or "",
        right=right,
        on=on,
        # A table that changes cannot say which rows will never find a partner: all of them are kept.
        type=section.choice("type", TYPES, "inner") if streams else section.choice("type", ("left",), "left"),
        interval=_interval(section) if streams else None,
        unmatched=beside(given.table, section, "unmatched") if streams else given.table,
        late=beside(given.table, section, "late") if streams else given.table,
    )


def _right(section: Section, given: Given) -> str | Lookup:
    if not section.is_section("right"):
        return section.text("right") or ""
    inner = section.section("right")
    flow, path = inner.text("table"), inner.text("path")
    if (flow is None) == (path is None):
        inner.fault((), "name either a 'table', the name of the flow that writes it, or a 'path' of one in the lake")
    format_ = inner.choice("format", FORMATS, "delta") if path is not None else "delta"
    inner.done()
    return Lookup(flow=flow) if path is None else Lookup(table=Table(path=given.path(path), format=format_))


def _interval(section: Section) -> Interval:
    section.need("within", "{after: 15m}")
    section.need("watermark", "10m")
    given = section.has("within")
    within = section.section("within")
    before_ms, after_ms = within.duration_ms("before", 0, 0), within.duration_ms("after", 0, 0)
    if given and not (within.has("before") or within.has("after")):
        within.fault((), "needs 'before' or 'after', or both: how far the right row's time may lie from the left one's")
    within.done()
    both = not section.is_section("time")
    time = section.section("time") if not both else section
    times: dict[Side, str] = {side: time.text("time" if both else side) or "timestamp" for side in SIDES}
    if not both:
        time.done()
    return Interval(
        times=times,
        before_ms=before_ms,
        after_ms=after_ms,
        watermark_ms=section.duration_ms("watermark", 0, 0),
        watermark_of=section.choice("watermark_of", ("slowest", "fastest"), "slowest"),
    )


def stream(plans: Plans, flow: Join, committing: bool) -> DataFrame:
    """Of two streams, the rows of both as one: what joins them is ours, and no operator's."""
    left = plans.stream(flow.left)
    if not isinstance(flow.right, str):
        return left
    from tidelog.spark.pipeline.join_rows import both

    return both(flow, left, plans.stream(flow.right))


def check(flow: Join, frame: DataFrame) -> None:
    if flow.interval is None:
        from tidelog.spark.pipeline.looking_up import check_left

        check_left(flow, frame)


def keeps(flow: Join, frame: DataFrame) -> Terms | None:
    from tidelog.spark.pipeline.joining import terms_of

    return None if flow.interval is None else terms_of(flow, frame)


def sink(flow: Join, pipeline: Pipeline) -> Sink:
    if flow.interval is None:
        from tidelog.spark.pipeline.looking_up import LookupSink

        return LookupSink(flow, pipeline)
    from tidelog.spark.pipeline.joining import JoinSink

    return JoinSink(flow, pipeline.work)


def outlets(flow: Join, pipeline: Pipeline, link: Link, ingest: str) -> Sequence[Outlet]:
    from tidelog.spark.pipeline.join_audit import outlets_of

    return outlets_of(flow, pipeline, flow.side_of(ingest))


def proof(anew: Recomputed, flow: Join) -> Proof:
    if flow.interval is None:
        from tidelog.spark.pipeline.proving_lookup import prove_looked_up

        return prove_looked_up(anew, flow)
    from tidelog.spark.pipeline.proving_join import prove_pairs

    return prove_pairs(anew, flow, flow.interval)


KIND: Final = Kind(
    name="join", flow=Join, read=read, stream=stream, sink=sink, check=check, keeps=keeps, outlets=outlets, proof=proof
)
