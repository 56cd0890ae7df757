"""One batch of a view: its changes go into the state, into the history, and into the table's buckets that they touch.

The table is partitioned by buckets, by a hash of the key; a batch replaces those with changes and leaves the others.
So is the state, a table of its own in the work directory (kept.py).

What a batch does, in this order; each step once however often the batch is repeated (lake.md):

    died after                          the batch is repeated and
    state replaced                      finds it done by (query, batch), and takes what it says
    history, unapplied rows appended    finds those tables done
    table replaced                      finds it done
    changes published, if it does so    finds it done in the sink's own topic; all that is left is Spark's own commit
    the batch noted                     finds all of it done, and notes it again, with the same counts
The table's rows are made of the state after the batch, of the batch's changes, and of what the table had before it: the
first is kept once it is made, the second is the same each time, and the third is there as long as it is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.spark.pipeline.kinds.view import BUCKET, View
from tidelog.spark.pipeline.publishing import Outlet
from tidelog.spark.pipeline.sinks import Written, table_of
from tidelog.spark.pipeline.views.changes import OP, REASON, TIME, Reading
from tidelog.spark.pipeline.views.kept import Kept, rows_in
from tidelog.spark.pipeline.views.publishing import changed, published
from tidelog.spark.pipeline.views.steps import steps_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidelog.spark.lake import LakeTable


class ViewSink:
    def __init__(self, flow: View, work: Path, outlet: Outlet | None = None) -> None:
        self._flow = flow
        self._outlet = outlet
        self._kept = Kept(flow, work)
        self._kept.require_same()
        self._table, self._unapplied = table_of(flow.table), table_of(flow.unapplied)
        self._changes = None if flow.changes is None else table_of(flow.changes)
        self._state: LakeTable | None = None
        self._reading = Reading(flow)
        self._steps = steps_of(flow)

    def write(self, frame: DataFrame, query: str, batch: int, attempt: str) -> Written:
        self._kept.begin(query)
        self._state = self._kept.state(query)
        judged = self._reading.judged(frame).persist()
        try:
            found = self._counted(judged)
            if found["buckets"]:
                self._apply(self._reading.applied(judged), self._state, found, {"query": query, "batch": batch})
                self._publish(self._reading.applied(judged), found, query, batch)
            if found["unapplied"]:
                rows = self._reading.unapplied(judged, frame.columns)
                self._unapplied.append(rows, query=query, batch=batch)
        finally:
            judged.unpersist()
        noted = self._kept.note(query, batch, {name: found[name] for name in ("rows", "unapplied")})
        return Written(rows=noted.counts["rows"], aside={"unapplied": noted.counts["unapplied"]})

    def tables(self) -> list[LakeTable]:
        return [table for table in (self._table, self._unapplied, self._changes, self._state) if table is not None]

    def _counted(self, judged: DataFrame) -> dict[str, Any]:
        from pyspark.sql import functions as F

        keys = [F.expr(expression) for _, expression in self._flow.key]
        is_applied = F.col(REASON).isNull()
        found = judged.agg(
            F.count_if(is_applied).alias("rows"),
            F.count_if(~is_applied).alias("unapplied"),
            F.collect_set(F.when(is_applied, _bucket(keys, self._flow.buckets))).alias("buckets"),
            F.max(F.when(is_applied, F.unix_millis("timestamp"))).alias("newest"),
        ).first()
        assert found is not None
        return {**found.asDict(), "buckets": sorted(found["buckets"])}

    def _publish(self, changes: DataFrame, found: dict[str, Any], query: str, batch: int) -> None:
        if self._outlet is None or self._flow.publish is None:
            return
        after = rows_in(changes.sparkSession, self._table, found["buckets"])
        assert after is not None, "the table was written a moment ago"
        rows = changed(changes, after, [column for column, _ in self._flow.key])
        self._outlet.write(published(self._flow.publish, rows), query, batch)

    def _apply(self, changes: DataFrame, kept: LakeTable, found: dict[str, Any], once: dict[str, Any]) -> None:
        spark, buckets = changes.sparkSession, found["buckets"]
        where = {BUCKET: buckets}
        if not kept.has_batch(**once):
            after = self._steps.state(changes, rows_in(spark, kept, buckets), found["newest"])
            kept.replace(self._bucketed(after), where=where, **once)
        if self._changes is not None:
            self._changes.append(dated(changes), **once)
        if self._table.has_batch(**once):
            return
        # A query that has written nothing here has a new checkpoint: what an earlier one left is built anew.
        is_first = once["query"] not in self._table.describe().batches
        state = rows_in(spark, kept, buckets)
        assert state is not None
        rows = None if is_first else rows_in(spark, self._table, buckets)
        made = self._bucketed(self._steps.rows(state, changes, rows))
        self._table.replace(made, where=None if is_first else where, **once)

    def _bucketed(self, rows: DataFrame) -> DataFrame:
        """With the bucket, and each bucket's rows in one task: they become one file."""
        from pyspark.sql import functions as F

        keys = [F.col(f"`{column}`") for column, _ in self._flow.key]
        return rows.withColumn(BUCKET, _bucket(keys, self._flow.buckets)).repartition(BUCKET)


def _bucket(keys: list[Column], buckets: int) -> Column:
    from pyspark.sql import functions as F

    return F.pmod(F.hash(*keys), F.lit(buckets))


def dated(changes: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    columns = [column for column in changes.columns if column not in (OP, TIME)]
    return changes.select(OP, *columns, TIME, F.to_date(TIME).alias("event_date"))
