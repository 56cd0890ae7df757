"""One batch of a flow with dead letters: decide, letters to their topics, good rows to the table.

killed                                what the next run finds, and does
before the decision is in place       nothing was written: the batch is judged anew, perhaps otherwise
after it, before the letters          the decision: letters and rows are written as it says
within the letters                    the sink's own decision (docs/decisions/0011): it is finished, not doubled
after the letters, before the table   the letters are known by (query, batch) and not written again; rows are written
after the table, before Spark's       both are known by (query, batch); nothing is written
after Spark's own commit              the next batch begins with the rows of this decision that wait
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tidelog.kernel.ports import Clock
from tidelog.runtime.clock import SystemClock
from tidelog.spark.pipeline.batch_state import StateError
from tidelog.spark.pipeline.kinds.ingest import Ingest, rows_of
from tidelog.spark.pipeline.letters.decisions import Decided, Decisions
from tidelog.spark.pipeline.letters.judging import (
    DEAD,
    GOOD,
    KEPT,
    OUTCOME,
    REASON,
    RETRY,
    WAITING,
    arrived,
    judged,
    letters_of,
    without_errors,
)
from tidelog.spark.pipeline.letters.lookups import Lookups
from tidelog.spark.pipeline.letters.topics import ensure_topics
from tidelog.spark.pipeline.letters.waking import Waker
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.sinks import Written, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.spark.lake import LakeTable

Step = Callable[[str], None]
"""Told of each point that a crash may come at; for tests."""


def home_of(pipeline: Pipeline, flow: str) -> Path:
    return pipeline.work / "letters" / flow


def definition_of(flow: Ingest) -> str:
    assert flow.dead_letters is not None
    return " and ".join(flow.dead_letters.topics)


def decisions_of(flow: Ingest, pipeline: Pipeline, query: str) -> Decisions:
    return Decisions(home_of(pipeline, flow.name) / query, definition_of(flow))


class LetterSink:
    step: Step = staticmethod(lambda step: None)

    def __init__(self, flow: Ingest, pipeline: Pipeline) -> None:
        assert flow.dead_letters is not None
        self._flow = flow
        self._letters = flow.dead_letters
        self._pipeline = pipeline
        self._kafka = {**flow.kafka, "bootstrap.servers": pipeline.bootstrap_servers}
        self._table = table_of(flow.table)
        self._lookups = Lookups(pipeline, self._letters)
        self._waker = Waker(self._kafka, self._letters.retry_topic)
        self._clock: Clock = SystemClock()
        self._last: Decided | None = None
        self._rows = 0
        ensure_topics(flow, self._kafka)

    def tables(self) -> list[LakeTable]:
        return [self._table]

    # Between batches

    def starting(self, clock: Clock) -> None:
        """Records may have come due while nobody ran: their batch needs a record that is new."""
        from tidelog.spark.pipeline.letters.checkpoints import query_of

        self._clock = clock
        query = query_of(self._checkpoint)
        self._last = None if query is None else self._decisions(query).last()
        if self._last is not None and self._waker.is_due(self._last, clock.wall_ms()):
            self._waker.wake(self._last)

    def look(self) -> None:
        """Many times a second, from another thread than the batches'."""
        last = self._last
        if last is not None and self._waker.is_due(last, self._clock.wall_ms()):
            self._waker.wake_beside(last)

    # A batch

    def write(self, frame: DataFrame, query: str, batch: int, attempt: str) -> Written:
        decisions = self._decisions(query)
        decided = decisions.of(batch)
        if decided is None:
            decided = self._decide(frame, decisions, query, batch, attempt)
            self.step("judged")
            decisions.keep(decided)
        self.step("decided")
        if decided.data is not None:
            rows = _stored(frame.sparkSession, decisions.home, decided)
            self._send(rows, decided, query)
            self.step("sent")
            if decided.count(GOOD):
                good = rows.where(rows[OUTCOME] == GOOD).select(*self._columns(rows))
                self._rows += self._table.append(good, query=query, batch=batch).rows
            self.step("landed")
        self._last = decided
        return Written(rows=self._rows, dead=decided.dead, retrying=decided.count(RETRY) + decided.count(WAITING))

    def _decide(self, frame: DataFrame, decisions: Decisions, query: str, batch: int, attempt: str) -> Decided:
        before = decisions.before(batch) or self._nothing(batch)
        flow, spark = self._flow, frame.sparkSession
        now_ms = self._clock.wall_ms()
        found = judge(flow, arrived(frame, self._letters, flow.name, query), self._lookups, now_ms)
        if before.count(WAITING):
            # Judged before they come together: Spark 4.3 cannot plan a subquery over a union.
            kept = _stored(spark, decisions.home, before)
            waited = kept.where(kept[OUTCOME] == WAITING).select(*KEPT)
            found = found.unionByName(judge(flow, waited, self._lookups, now_ms))
        folder = decisions.folder(batch, attempt)
        found.write.partitionBy(OUTCOME).parquet(str(folder))
        fresh = Decided(batch=batch, definition=decisions.definition, data=folder.name, schema=_schema(found))
        counted = _counted(_stored(spark, decisions.home, fresh))
        outcomes: dict[str, int] = {}
        dead = dict(before.dead)
        for row in counted:
            outcomes[row[OUTCOME]] = outcomes.get(row[OUTCOME], 0) + row["rows"]
            if row[OUTCOME] == DEAD:
                dead[row[REASON]] = dead.get(row[REASON], 0) + row["rows"]
        due_ms = min((row["due_ms"] for row in counted if row[OUTCOME] == WAITING), default=None)
        return msgspec.structs.replace(
            fresh,
            data=folder.name if outcomes else None,
            outcomes=outcomes,
            dead=dead,
            retries=before.retries + outcomes.get(RETRY, 0),
            due_ms=due_ms,
        )

    def _nothing(self, batch: int) -> Decided:
        """What the first batch begins with; also that of a flow which had no dead letters before."""
        from tidelog.spark.pipeline.letters.checkpoints import has_read

        if batch > 0 and has_read(self._checkpoint, batch - 1, self._letters.retry_topic):
            home = home_of(self._pipeline, self._flow.name)
            raise StateError(f"{home} has no state for batch {batch}; it belongs to the checkpoint")
        return Decided(batch=-1, definition=definition_of(self._flow))

    def _send(self, rows: DataFrame, decided: Decided, query: str) -> None:
        if not decided.count(DEAD) + decided.count(RETRY):
            return
        letters = letters_of(rows, self._letters, self._flow.name, query, decided.batch)
        options = {f"kafka.{name}": value for name, value in self._kafka.items()}
        (
            letters.write.format("tidelog")
            .mode("append")
            .options(**options)
            .option("timestampColumn", "timestamp")
            .option("txnAppId", f"{query}.letters")
            .option("txnVersion", str(decided.batch))
            .save()
        )

    def _columns(self, rows: DataFrame) -> list[str]:
        """Those of the table, as the flow would have them without dead letters."""
        left_out = {*KEPT, *rows.columns[rows.columns.index(REASON) :]}
        record = [name for name in KEPT if not name.startswith("_") and (name != "headers" or self._flow.headers)]
        return [*record, *(name for name in rows.columns if name not in left_out)]

    def _decisions(self, query: str) -> Decisions:
        return decisions_of(self._flow, self._pipeline, query)

    @property
    def _checkpoint(self) -> Path:
        return self._pipeline.work / "checkpoints" / self._flow.name


def judge(flow: Ingest, rows: DataFrame, lookups: Lookups, now_ms: int) -> DataFrame:
    """Rows as they are known, with what becomes of them."""
    assert flow.dead_letters is not None
    letters = lookups.register(rows.sparkSession)
    with without_errors(rows.sparkSession):
        decodes = None if flow.decode is None else flow.decode.column
        return judged(rows_of(rows, flow), letters, flow.name, decodes, now_ms)


def _schema(frame: DataFrame) -> str:
    found: str = frame.schema.json()
    return found


def _stored(spark: SparkSession, home: Path, decided: Decided) -> DataFrame:
    from pyspark.sql.types import StructType

    assert decided.data is not None
    schema = StructType.fromJson(msgspec.json.decode(decided.schema))
    return spark.read.schema(schema).parquet(str(home / decided.data))


def _counted(rows: DataFrame) -> list[Any]:
    """A row per outcome and reason: never more than there are rules."""
    from pyspark.sql import functions as F

    found = rows.groupBy(OUTCOME, REASON).agg(F.count("*").alias("rows"), F.min("_not_before").alias("due_ms"))
    counted: list[Any] = found.collect()
    return counted
