"""What a kind of flow is: how it is read from a file, which rows its query gets, and what is done with a batch.

A kind is a module of this folder, named in __init__.py; nothing else asks of which kind a flow is.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidelog.kernel.errors import TidelogError
from tidelog.spark.pipeline.model import Flow, Format, Maintenance, Pipeline, Restart, Table, Trigger
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

F = TypeVar("F", bound=Flow)


class PlanError(TidelogError):
    """A flow that fits no plan; becomes a fault with the flow's line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What `defaults` may hold for all flows."""

    format: Format = "delta"
    trigger: Trigger = field(default_factory=Trigger)
    maintenance: Maintenance = field(default_factory=Maintenance)
    restart: Restart = field(default_factory=Restart)

    def options(self) -> dict[str, Any]:
        return {"trigger": self.trigger, "maintenance": self.maintenance, "restart": self.restart}


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a flow is read from."""

    name: str
    section: Section
    common: Common
    table: Table
    kafka: Mapping[str, str]  # settings of the pipeline's clients
    lake: str

    def path(self, text: str) -> str:
        """Of a table in the lake."""
        return os.path.normpath(os.path.join(self.lake, os.path.expanduser(text)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[F]):
    name: str
    flow: type[F]
    read: Callable[[Given], F]
    """Every fault goes to the section; what is returned then is not used."""
    stream: Callable[[Plans, F, bool], DataFrame]
    """The rows that its query gets; whether it is the flow's own query, which commits its progress to a group."""
    sink: Callable[[F, Pipeline], Sink]
    check: Callable[[F, DataFrame], None] = lambda flow, frame: None
    """PlanError for what only the columns of its stream can show, before anything is started."""
    keeps: Callable[[F, DataFrame], Terms | None] = lambda flow, frame: None
    """What the state depends on that it keeps between batches, if it does. One that was made otherwise is refused
    before anything is started."""
    resumes: Callable[[F, Pipeline], None] = lambda flow, pipeline: None
    """StateError for one that keeps its state in a way of its own, and has one that it could not go on with; before
    anything is started, too."""
    blamed: tuple[str, ...] = field(default=())
    """The key that a fault of its plan is told of, where it is not the flow as a whole."""
    outlets: Callable[[F, Pipeline, Link, str], Sequence[Outlet]] | None = None
    """For `check`: where the records of an ingest flow behind the flow, which is named, end up. Each record that the
    checkpoint claims of it must be in exactly one of them, once, with the coordinates (topic, partition, offset,
    timestamp) it has in the log:

        [Outlet("lake", table_of(flow.table)), Outlet("duplicates", table_of(flow.duplicates)),
         Outlet("dead letters", Letters(link, flow.dead_letters, flow.name))]

    Two ingest flows may read one topic. Then a record is a row of each, and coordinates alone do not tell which of
    them a row in a table is: a flow that reads several says for each only what has become of its own rows.
    A table of the lake is an outlet as it is if it has those columns; audit/letters.py makes one of a topic whose
    records say in headers where they come from. None, or an empty list, where rows cannot be told by coordinates (a
    query may drop or multiply them): then `proof` is asked."""
    proof: Callable[[Recomputed, F], Proof] | None = None
    """For `check`, where there are no outlets: the flow is computed anew in batch from the log and compared with what
    its tables hold (proving.py; `prove_rows` does it for a query whose rows are appended). An UnprovableError says why
    it cannot be; that is not a failure."""


AnyKind = Kind[Any]
