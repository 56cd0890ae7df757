"""What a report is made of, gathered: the histories, the last states, the audit made anew, the tables as they are.

Whatever cannot be had is said in its place, and the rest of the report is made all the same: a broker that is down is
a reason to look at one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tidelog.kernel.errors import TidelogError
from tidelog.spark.audit.report import Report
from tidelog.spark.pipeline.history import Line, Mark, Sample, flow_file, read_history, run_file
from tidelog.spark.pipeline.kinds import kind_of
from tidelog.spark.pipeline.model import Flow, Pipeline, Table
from tidelog.spark.pipeline.state import FlowState, StateFiles, Status

if TYPE_CHECKING:
    from tidelog.spark.lake.table import Description
    from tidelog.spark.pipeline.checking import Finding

Grade = Literal["good", "warn", "bad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    table: Table
    aside: str = ""  # what is in it, where it is not the flow's own: late, duplicates
    found: Description | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFacts:
    flow: str
    report: Finding | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFacts:
    flow: Flow
    state: FlowState | None
    samples: list[Sample]
    marks: list[Mark]
    tables: list[TableFacts]

    @property
    def kind(self) -> str:
        return kind_of(self.flow).name


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    pipeline: Pipeline
    status: Status
    now_ms: int
    begin_ms: int
    end_ms: int
    runs: list[Mark]
    flows: list[FlowFacts]
    audits: list[AuditFacts]
    checked: bool

    @property
    def died(self) -> bool:
        run = self.status.run
        return not self.status.alive and run is not None and run.ended_ms is None

    def verdict(self) -> tuple[Grade, str]:
        if not self.checked:
            return "warn", "not checked"
        found = [one.report for one in self.audits if one.report is not None]
        if any(one.verdict == "off" for one in found):
            return "bad", "does not balance"
        if not self.audits or len(found) < len(self.audits):
            return "warn", "could not be checked"
        if any(one.verdict == "unknown" for one in found):
            windows = all(one.balanced for one in found)
            return "warn", "balanced, with unknown windows" if windows else "balanced, as far as it can be proved"
        return "good", "balanced"

    def reasons(self) -> dict[str, dict[str, int]]:
        """Dead letters of each flow, by reason: as its topic has them, or else as the flow has counted them."""
        found = {one.flow.name: dict(one.state.dead or {}) for one in self.flows if one.state is not None}
        found |= {one.flow: dict(one.report.reasons) for one in self.audits if isinstance(one.report, Report)}
        return {flow: reasons for flow, reasons in found.items() if reasons}


def gather(pipeline: Pipeline, now_ms: int, *, check: bool, since_ms: int | None, tell: Callable[[str], None]) -> Facts:
    status = StateFiles(pipeline.work).read(list(pipeline.flows))
    states = {state.flow: state for state in status.flows}
    oldest_ms = 0 if since_ms is None else now_ms - since_ms
    runs = [line for line in _lines(pipeline, None, oldest_ms) if isinstance(line, Mark)]
    run = status.run
    if run is not None and run.ended_ms is None and not status.alive:
        runs.append(Mark(at_ms=run.seen_ms, what="died", text=f"pid {run.pid}"))  # the next run would say so
    flows = []
    for name, flow in pipeline.flows.items():
        lines = _lines(pipeline, name, oldest_ms)
        flows.append(
            FlowFacts(
                flow=flow,
                state=states.get(name),
                samples=[line for line in lines if isinstance(line, Sample)],
                marks=[line for line in lines if isinstance(line, Mark)],
                tables=list(_tables(flow)),
            )
        )
    times = [mark.at_ms for mark in runs] + [mark.at_ms for one in flows for mark in one.marks]
    times += [at for one in flows for sample in one.samples for at in (sample.since_ms, sample.at_ms)]
    times += [now_ms] if status.alive else []
    return Facts(
        pipeline=pipeline,
        status=status,
        now_ms=now_ms,
        begin_ms=max(oldest_ms, min(times, default=now_ms)),
        end_ms=max(times, default=now_ms),
        runs=runs,
        flows=flows,
        audits=_audits(pipeline, tell) if check else [],
        checked=check,
    )


def _lines(pipeline: Pipeline, flow: str | None, oldest_ms: int) -> list[Line]:
    file = run_file(pipeline.work) if flow is None else flow_file(pipeline.work, flow)
    return [line for line in read_history(file) if line.at_ms >= oldest_ms]


def _tables(flow: Flow) -> Iterator[TableFacts]:
    from tidelog.spark.pipeline.sinks import table_of

    asides = {table.path: aside for aside, table in flow.aside.items()}
    for table in flow.tables:
        aside = asides.get(table.path, "")
        try:
            found = table_of(table).describe()
        except Exception as error:  # of whichever library keeps the table
            yield TableFacts(table=table, aside=aside, error=f"{type(error).__name__}: {error}")
        else:
            yield TableFacts(table=table, aside=aside, found=found)


def _audits(pipeline: Pipeline, tell: Callable[[str], None]) -> list[AuditFacts]:
    """Flow by flow: one that cannot be checked leaves the others."""
    from tidelog.spark.pipeline.checking import Sessions, check

    found = []
    with Sessions(pipeline, tell) as sessions:
        for name in pipeline.flows:
            try:
                reports = check(pipeline, [name], tell, sessions=sessions)
                found += [AuditFacts(flow=told, report=report) for told, report in reports]
            except (TidelogError, OSError) as error:
                found.append(AuditFacts(flow=name, error=str(error)))
    return found
