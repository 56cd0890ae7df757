"""`reprocess`: a flow's output is built anew from the log beside the live one, audited, and swapped in.

The live flow goes on meanwhile. It stands still only for the last part: the shadow reads what has come since, is
audited once more, and takes its place, so that a reader finds nothing less than before the swap.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.kernel.errors import DirectoryLockedError
from tidelog.kernel.ports import Clock
from tidelog.runtime.dirlock import lock_file
from tidelog.runtime.durable import replace_file
from tidelog.spark.pipeline.faults import allowed
from tidelog.spark.pipeline.history import REPROCESSED, History, Mark, flow_file
from tidelog.spark.pipeline.kinds import kind_of
from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.kinds.sql import Sql
from tidelog.spark.pipeline.model import Flow, Pipeline
from tidelog.spark.pipeline.reprocess.asking import standing_still
from tidelog.spark.pipeline.reprocess.auditing import audit_shadow, check_no_less
from tidelog.spark.pipeline.reprocess.before import check_coordinates, has_kept, keep_before
from tidelog.spark.pipeline.reprocess.claims import Reach, reach_of
from tidelog.spark.pipeline.reprocess.places import Places, query_of
from tidelog.spark.pipeline.reprocess.shadow import Starts, note_starts, plan_of, shadow_of, source_from, swapped
from tidelog.spark.pipeline.reprocess.since import (
    ReprocessError,
    Since,
    check_log,
    first_offsets,
    resolve,
    sources,
)
from tidelog.spark.pipeline.reprocess.swap import Step, Swap, decide, discard, finish, nothing
from tidelog.spark.pipeline.sinks import table_of
from tidelog.spark.pipeline.starts import definition_of, definitions_of, is_changed, note_definitions, starts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.link import At, Link


def check_flow(pipeline: Pipeline, name: str, since: Since | None) -> Flow:
    """ReprocessError for a flow that cannot be reprocessed at all, or not since then."""
    if name not in pipeline.flows:
        raise ReprocessError(f"there is no flow {name!r}; {allowed(name, pipeline.flows)}")
    flow = pipeline.flows[name]
    if flow.topics_written:
        raise ReprocessError(
            f"{name!r} writes to the topic {flow.topics_written[0]!r}, and what is written there cannot be taken back: "
            "give the changed flow another name and another topic"
        )
    if since is not None and (not isinstance(flow, Ingest | Sql) or len(sources(pipeline, name)) != 1):
        raise ReprocessError(
            f"{name!r} ({kind_of(flow).name}) can only be rebuilt as a whole: "
            "--since is for ingest flows, and for sql flows over one of them"
        )
    return flow


def flows_to_rebuild(pipeline: Pipeline, name: str | None, since: Since | None) -> list[Flow]:
    """The one that is named, or all whose rows were made by another definition than the file has now. ReprocessError
    when there is none, or one of them cannot be rebuilt."""
    if name is not None:
        return [check_flow(pipeline, name, since)]
    changed = [flow.name for flow in pipeline.flows.values() if _is_changed(pipeline, flow)]
    if not changed:
        raise ReprocessError(
            "no flow has changed since its rows were made; --flow names one to be rebuilt all the same"
        )
    try:
        return [check_flow(pipeline, one, since) for one in changed]
    except ReprocessError as error:
        raise ReprocessError(f"{error}. Changed are {', '.join(changed)}; --flow rebuilds one of them") from None


def _is_changed(pipeline: Pipeline, flow: Flow) -> bool:
    query = query_of(Places(pipeline.work, flow.name).checkpoint)
    return query is not None and is_changed(pipeline, flow, query)


class Reprocessing:
    def __init__(
        self,
        pipeline: Pipeline,
        flow: str,
        session: Callable[[], SparkSession],
        clock: Clock,
        tell: Callable[[str], None],
        *,
        since: Since | None = None,
        keep_old: bool = False,
        unproved: bool = False,
        wait: Callable[[], object],
        step: Step = nothing,
    ) -> None:
        self._flow = check_flow(pipeline, flow, since)
        self._pipeline = pipeline
        self._places = Places(pipeline.work, flow)
        self._session = session
        self._clock = clock
        self._tell = tell
        self._since = since
        self._keep_old = keep_old
        self._unproved = unproved
        self._wait = wait
        self._step = step

    def run(self) -> None:
        """Returns when the swap is done. Whatever it raises, the live flow is as it was, or the swap is decided and
        will be finished by who comes next."""
        places = self._places
        places.lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = lock_file(str(places.lock))
        except DirectoryLockedError:
            raise ReprocessError(f"another process reprocesses {self._flow.name!r} already") from None
        try:
            if places.journal.exists():
                with standing_still(places, self._tell, self._wait):
                    finish(places, self._step)
                self._say("an earlier reprocess had died in the middle of its swap; it is finished")
                return
            self._rebuild()
        finally:
            lock.release()

    def _rebuild(self) -> None:
        self._check_tables()
        starts = self._starts(self._live())
        shadow = shadow_of(self._pipeline, self._flow.name, starts)
        self._prepare(shadow, starts)
        spark = self._session()
        self._build(spark, shadow, starts)
        self._audit(spark, shadow)
        with standing_still(self._places, self._tell, self._wait) as beside_a_run:
            self._step("standing still")
            before = reach_of(self._places.shadow_checkpoint).batch
            self._build(spark, shadow, starts)
            reach = reach_of(self._places.shadow_checkpoint)
            if lacking := reach.lacks(self._live()):
                topic, number = lacking[0]
                raise ReprocessError(f"the log ends before what {self._flow.name!r} had landed of {topic}-{number}")
            if reach.batch != before:
                self._audit(spark, shadow)
            if self._since is not None:
                (begin,) = starts.values()
                kept = keep_before(spark, self._flow, shadow.flows[self._flow.name], begin)
                self._say(f"{kept} rows of earlier records stay")
            check_no_less(self._pipeline, shadow, self._flow.name)
            self._swap(reach)
            if not beside_a_run:
                history = History(flow_file(self._pipeline.work, self._flow.name))
                history.add(Mark(at_ms=self._clock.wall_ms(), what=REPROCESSED))
                history.close()

    def _check_tables(self) -> None:
        """What could not be swapped, before anything is built."""
        for table in self._flow.tables:
            live = table_of(table)
            if not live.exists() and any(not path.name.startswith("_tidelog") for path in Path(table.path).glob("*")):
                raise ReprocessError(f"{table.path} is no {table.format} table: give the changed flow another name")
            if (there := live.partitioned_by()) != table.partition_by:
                raise ReprocessError(
                    f"the table in {table.path} is partitioned by ({', '.join(there)}), the changed flow's by "
                    f"({', '.join(table.partition_by)}): give it another name"
                )
        if self._since is not None:
            check_coordinates(self._flow)

    def _live(self) -> Reach:
        live = reach_of(self._places.checkpoint)
        if live.batch < 0:
            raise ReprocessError(f"{self._flow.name!r} has landed nothing yet; there is nothing to rebuild")
        return live

    def _starts(self, live: Reach) -> Starts:
        """Where each of its sources begins; refused when the log begins later."""
        from tidelog.spark.lake.errors import SchemaError
        from tidelog.spark.link import Link

        try:
            first = first_offsets(table_of(self._flow.table))
        except SchemaError:
            first = {}  # its rows do not say which records they are of
        starts: dict[str, dict[At, int]] = {}
        for source in sources(self._pipeline, self._flow.name):
            config = {**source.kafka, "bootstrap.servers": self._pipeline.bootstrap_servers}
            with Link(config) as link:
                begin = self._begin(link, source, live)
                check_log(link, begin or dict.fromkeys(_partitions(link, source), 0), first, live)
            if begin is not None:
                starts[source.name] = begin
        return starts

    def _begin(self, link: Link, source: Ingest, live: Reach) -> dict[At, int] | None:
        if self._since is not None:
            return resolve(link, _partitions(link, source), self._since, live)
        if source.starting == "earliest":
            return None
        every = starts_of(self._pipeline.work, self._flow.name)
        noted = next((one for one in every if all(source.takes(topic) for topic, _ in one)), None)
        if noted is None:
            raise ReprocessError(
                f"{source.name!r} starts at the latest records, and where {self._flow.name!r} began is not known; "
                "give the changed flow another name"
            )
        # A partition that came later was read from its start.
        return {at: noted.get(at, 0) for at in _partitions(link, source)}

    def _prepare(self, shadow: Pipeline, starts: Starts) -> None:
        """A shadow that was begun by the same plan is gone on with, unless the rows that stay are in it already."""
        plan = plan_of(self._pipeline, self._flow.name, starts)
        found = self._places.plan.read_text() if self._places.plan.exists() else None
        if found == plan and not has_kept(shadow.flows[self._flow.name]):
            self._say("goes on with what an earlier reprocess has left")
            return
        discard(self._places, list(self._flow.tables))
        self._places.home.mkdir(parents=True, exist_ok=True)
        note_starts(shadow, self._flow.name, starts)
        replace_file(str(self._places.plan), plan.encode())

    def _build(self, spark: SparkSession, shadow: Pipeline, starts: Starts) -> None:
        """All that is in the log by now."""
        from tidelog.spark.pipeline.runner import Runner

        name = self._flow.name
        source = source_from(spark, shadow, starts)
        runner = Runner(shadow, spark, self._clock, self._tell_of_shadow, once=True, only=[name], source=source)
        if runner.run() != 0:
            raise ReprocessError(f"{name!r} could not be rebuilt; nothing was changed")

    def _audit(self, spark: SparkSession, shadow: Pipeline) -> None:
        audit_shadow(shadow, self._flow.name, spark, self._tell_of_shadow, unproved=self._unproved)

    def _swap(self, reach: Reach) -> None:
        query = query_of(self._places.shadow_checkpoint)
        assert query is not None, "a batch without a query"
        self._note_definitions(query)
        before = [table_of(table).count() for table in self._flow.tables]
        tables = swapped(self._flow)
        swap = Swap(flow=self._flow.name, query=query, batch=reach.batch, tables=tables, keep_old=self._keep_old)
        decide(self._places, swap, self._step)
        finish(self._places, self._step)
        for table, rows in zip(self._flow.tables, before, strict=True):
            self._say(f"{table_of(table).count()} rows took the place of {rows} in {table.path}")

    def _note_definitions(self, query: str) -> None:
        """The shadow's definition has its own paths in it; and rows that stay were made by those of the old query."""
        definitions = [definition_of(self._pipeline, self._flow)]
        old = query_of(self._places.checkpoint)
        if self._since is not None and old is not None:
            definitions = [*definitions_of(self._pipeline.work, self._flow.name, old), *definitions]
        note_definitions(self._places.shadow, self._flow.name, query, definitions)

    def _say(self, text: str) -> None:
        self._tell(f"{self._flow.name}: {text}")

    def _tell_of_shadow(self, text: str) -> None:
        self._tell(f"rebuilding: {text}")


def _partitions(link: Link, source: Ingest) -> list[At]:
    topics = source.topics or tuple(topic for topic in link.topics() if source.takes(topic))
    return [(topic, number) for topic, numbers in link.partitions(topics).items() for number in numbers]
