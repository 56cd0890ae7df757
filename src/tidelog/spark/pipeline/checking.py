"""`check`: the audit of every flow. Where rows have the coordinates of their records, from the broker's log and the
table's files; else the flow is computed anew from the log, for which Spark is started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeAlias, runtime_checkable

from tidelog.kernel.errors import TidelogError
from tidelog.runtime.clock import SystemClock
from tidelog.spark.audit.report import Report
from tidelog.spark.audit.text import counted
from tidelog.spark.pipeline.kinds import kind_of
from tidelog.spark.pipeline.model import Flow, Pipeline
from tidelog.spark.pipeline.origins import Origin, OriginError, origins_of, topics_of
from tidelog.spark.pipeline.proof import Proof, UnprovableError, Verdict
from tidelog.spark.pipeline.reprocess.swap import finish_left
from tidelog.spark.pipeline.state import StateFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.audit import Outlet
    from tidelog.spark.audit.tiering import Told
    from tidelog.spark.link import Link

LOOKS: Final = 3
"""A record that goes from one outlet to another while they are read is seen in both or in neither."""
Finding: TypeAlias = Report | Proof
Tell: TypeAlias = Callable[[str], None]


@runtime_checkable
class Reasoned(Protocol):
    def reasons(self) -> Mapping[str, int]: ...


class CheckError(TidelogError):
    """There is nothing that could be checked."""


class Sessions:
    """A Spark session when one is asked for: a given one, that of this process, or one that is started, once, and ends
    with this."""

    def __init__(self, pipeline: Pipeline, tell: Tell, spark: SparkSession | None = None) -> None:
        self._pipeline = pipeline
        self._tell = tell
        self._spark = spark
        self._started: SparkSession | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._started is not None:
            self._started.stop()

    def get(self) -> SparkSession:
        from pyspark.sql import SparkSession

        from tidelog.spark.pipeline.session import log_of, session_of

        self._spark = self._spark or SparkSession.getActiveSession()
        if self._spark is None:
            self._tell(f"starting Spark, to compute flows anew; it prints to {log_of(self._pipeline)}")
            self._spark = self._started = session_of(self._pipeline)
        return self._spark


def check(
    pipeline: Pipeline,
    names: Sequence[str],
    tell: Tell,
    *,
    spark: SparkSession | None = None,
    sessions: Sessions | None = None,
) -> Iterator[tuple[str, Finding]]:
    """(flow, what was found) for the named flows, or all of them, as each is done.

    What is compared ends where the flow's checkpoint says it has landed: records behind that are lag, not loss. What
    a checkpoint without a batch claims is nothing, so then the whole log is compared: a flow that never ran is
    missing everything. With an `audit:` section a report has `tiers`: what producers and consumers counted, too.

    `spark`: the session for flows that are computed anew; without it that of this process, or one that ends with this.
    `sessions`: for several checks with one session.
    """
    finish_left(pipeline.work, tell)
    with ExitStack() as stack:
        shared = sessions or stack.enter_context(Sessions(pipeline, tell, spark))
        for flow in _flows(pipeline, names):
            found = list(_by_coordinates(shared, pipeline, flow, _telling(flow.name, tell)))
            yield from found or [(flow.name, _anew(shared, pipeline, flow, _telling(flow.name, tell)))]


def verdict_of(findings: Sequence[Finding]) -> Verdict:
    """Of all flows together: the worst."""
    verdicts = {one.verdict for one in findings}
    return "off" if "off" in verdicts else "unknown" if "unknown" in verdicts else "balanced"


def summary_of(pipeline: Pipeline, findings: Sequence[Finding]) -> str:
    """One sentence."""
    counts = {verdict: sum(one.verdict == verdict for one in findings) for verdict in ("balanced", "unknown", "off")}
    told = ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number)
    words = {"balanced": "balanced", "off": "does not balance", "unknown": "not all is proved"}
    return f"{pipeline.name}: {words[verdict_of(findings)]} ({counted(len(findings), 'audit')}: {told})"


def _by_coordinates(sessions: Sessions, pipeline: Pipeline, flow: Flow, tell: Tell) -> Iterator[tuple[str, Finding]]:
    """One for each ingest flow behind it; none where its rows cannot be told by coordinates."""
    if kind_of(flow).outlets is None:
        return
    try:
        origins = origins_of(pipeline, flow)
    except OriginError as error:
        yield flow.name, Proof(unknown=str(error))
        return
    for origin in origins:
        name = flow.name if len(origins) == 1 else f"{flow.name} ({origin.ingest.name})"
        try:
            report = _report(sessions, pipeline, flow, origin, tell)
        except UnprovableError as error:
            yield name, Proof(unknown=str(error))
        else:
            if report is not None:
                yield name, report


def _report(sessions: Sessions, pipeline: Pipeline, flow: Flow, origin: Origin, tell: Tell) -> Report | None:
    from tidelog.spark.audit.tiering import listen, with_tiers
    from tidelog.spark.link import Link

    ingest = origin.ingest
    kind = kind_of(flow)
    with Link({**ingest.kafka, "bootstrap.servers": pipeline.bootstrap_servers}) as link:
        outlets = kind.outlets(flow, pipeline, link, ingest.name) if kind.outlets is not None else []
        if not outlets:
            return None
        asked = pipeline.audit
        told: Told | None = None
        may_move = len(outlets) > 1 and StateFiles(pipeline.work).read([]).alive
        for _ in range(LOOKS if may_move else 1):
            told = listen(link, SystemClock(), window_ms=asked.window_ms, topic=asked.topic) if asked else None
            every = [*outlets, *_left_out(sessions, pipeline, flow, origin)]
            report = _look(pipeline, origin, every, link, tell)
            if report.balanced:
                break
            origin = next(one for one in origins_of(pipeline, flow) if one.ingest is ingest)
        if told is not None:
            anew = origin.claim.created_anew if origin.claim is not None else frozenset()
            report = with_tiers(link, report, told, isolation=ingest.isolation, created_anew=anew)
        return replace(report, reasons=_reasons(outlets))


def _left_out(sessions: Sessions, pipeline: Pipeline, flow: Flow, origin: Origin) -> list[Outlet]:
    """What an ingest flow with dead letters keeps from those that read it."""
    if origin.ingest is flow or origin.ingest.dead_letters is None or origin.claim is None:
        return []
    from tidelog.spark.audit import Outlet
    from tidelog.spark.pipeline.left_out import NAME, LeftOut

    return [Outlet(NAME, LeftOut(sessions.get, pipeline, origin))]


def _reasons(outlets: Sequence[Outlet]) -> dict[str, int]:
    """Of dead letters: an outlet that knows why its records are there says so by `reasons()`."""
    found: Counter[str] = Counter()
    for outlet in outlets:
        if isinstance(outlet.table, Reasoned):
            found.update(outlet.table.reasons())
    return dict(found.most_common())


def _look(pipeline: Pipeline, origin: Origin, outlets: Sequence[Outlet], link: Link, tell: Tell) -> Report:
    from tidelog.spark.audit import audit
    from tidelog.spark.audit.windows import HOUR_MS

    claim = origin.claim
    return audit(
        link,
        outlets,
        topics_of(link, origin.ingest),
        starts=origin.starts,
        ends=claim.ends if claim is not None else None,
        topic_ids=claim.topic_ids if claim is not None else None,
        created_anew=claim.created_anew if claim is not None else frozenset(),
        isolation=origin.ingest.isolation,
        window_ms=pipeline.audit.window_ms if pipeline.audit else HOUR_MS,
        progress=tell,
    )


def _anew(sessions: Sessions, pipeline: Pipeline, flow: Flow, tell: Tell) -> Proof:
    from tidelog.spark.pipeline.proving import prove

    return prove(sessions.get, pipeline, flow, tell)


def _telling(name: str, tell: Tell) -> Tell:
    return lambda text: tell(f"{name}: {text}")


def _flows(pipeline: Pipeline, names: Sequence[str]) -> list[Flow]:
    for name in names:
        if name not in pipeline.flows:
            raise CheckError(f"{name!r} is no flow; there are {', '.join(pipeline.flows)}")
    return [flow for name, flow in pipeline.flows.items() if not names or name in names]
