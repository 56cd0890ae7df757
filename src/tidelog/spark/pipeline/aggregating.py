"""One batch of an aggregate: every row goes into windows that are open, or into the table of late rows.

Spark's own watermark drops late rows inside its operators and only counts them. Here the watermark is ours: batch N
compares with the watermark that was kept after batch N-1, and what it keeps itself is put in place last
(batch_state.py). So a repeated batch splits its rows in the same way, and both tables take a batch only once.

    a row is late         when the end of its window is not after the watermark of the batch before; it has no time
    watermark             the latest event time so far less the allowed delay; it never goes back
    a window is closed    when its end is not after the watermark of this batch: it goes to the table, once
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tidelog.spark.pipeline.batch_state import BatchState, Folder, Manifest, Terms, kept_home, later
from tidelog.spark.pipeline.kinds.aggregate import Aggregate
from tidelog.spark.pipeline.measures import TIME, Part, kept
from tidelog.spark.pipeline.publishing import Outlet
from tidelog.spark.pipeline.sinks import Written, table_of
from tidelog.spark.pipeline.windows import END, START, join_sessions, spread

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidelog.spark.lake import LakeTable

WINDOWS: Final = "windows"
LATE_COLUMNS: Final = ("window_start", "window_end", "late_reason", "watermark")


class Aggregating:
    def __init__(
        self, flow: Aggregate, home: Path, table: LakeTable, late: LakeTable, outlet: Outlet | None = None
    ) -> None:
        self._flow = flow
        self._home = home
        self._table = table
        self._late = late
        self._outlet = outlet
        self._parts: list[Part] = [part for measure in flow.measures for part in kept(measure).parts]
        self._by = [column for column, _ in flow.by]

    def terms(self, frame: DataFrame) -> Terms:
        flow = self._flow
        definition = {
            "time": flow.time,
            "watermark": flow.watermark_ms,
            "window": flow.window,
            "by": flow.by,
            "measures": flow.measures,
        }
        return Terms(definition, {WINDOWS: self.partial(self.spread(frame)).schema.jsonValue()})

    def state(self, query: str, frame: DataFrame) -> BatchState:
        return BatchState(self._home / query, self.terms(frame))

    def run(self, frame: DataFrame, query: str, batch: int, attempt: str) -> Manifest:
        state = self.state(query, frame)
        before = state.before(batch)
        rows = self.spread(frame).persist()
        try:
            return self._run(rows, frame.columns, before, state, query, batch, attempt)
        finally:
            rows.unpersist()

    def spread(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        timed = frame.withColumn(TIME, F.expr(self._flow.time).cast("timestamp"))
        return spread(timed, self._flow.window)

    def partial(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        keys = [F.expr(expression).alias(column) for column, expression in self._flow.by]
        return rows.groupBy(*keys, START, END).agg(*(F.expr(p.partial).alias(p.column) for p in self._parts))

    def whole(self, rows: DataFrame) -> DataFrame:
        """The parts of all windows, of rows that come at once."""
        parts = self.partial(rows)
        return self._joined(parts, parts)

    def closed(self, parts: DataFrame) -> DataFrame:
        """Parts of windows that are complete, as the rows of the table."""
        from pyspark.sql import functions as F

        start = F.timestamp_millis(F.col(START))
        return parts.select(
            start.alias("window_start"),
            F.timestamp_millis(F.col(END)).alias("window_end"),
            *self._by,
            *(F.expr(kept(measure).final).alias(measure.name) for measure in self._flow.measures),
            F.to_date(start).alias("event_date"),
        )

    def _run(
        self,
        rows: DataFrame,
        columns: list[str],
        before: Manifest,
        state: BatchState,
        query: str,
        batch: int,
        attempt: str,
    ) -> Manifest:
        from pyspark.sql import functions as F

        is_late = F.col(END).isNull()
        if before.watermark_ms is not None:
            is_late = is_late | (F.col(END) <= before.watermark_ms)
        counted = rows.agg(
            F.max(F.unix_millis(TIME)).alias("latest"),
            F.count("*").alias("rows"),
            F.count_if(is_late).alias("late"),
        ).first()
        assert counted is not None
        watermark_ms = later(before.watermark_ms, counted["latest"], self._flow.watermark_ms)
        folder = state.folder(batch, attempt, WINDOWS)
        parts = self._merged(self.partial(rows.where(~is_late)), before, state)
        parts.write.parquet(str(folder))
        written = rows.sparkSession.read.schema(parts.schema).parquet(str(folder))
        if counted["late"]:
            self._late.append(self._late_rows(rows.where(is_late), columns, before), query=query, batch=batch)
        if watermark_ms is not None:
            complete = self.closed(written.where(F.col(END) <= watermark_ms))
            self._table.append(complete, query=query, batch=batch)
            if self._outlet is not None:
                # Each of the two knows the batch by itself: whichever is missing after a crash is written then.
                # Windows of one key in their order: the last one is what a compacted topic keeps.
                self._outlet.write(complete.orderBy("window_start"), query, batch)
        manifest = msgspec.structs.replace(
            before,
            batch=batch,
            watermark_ms=watermark_ms,
            # Parts of open windows change with every batch, so all of them are written again.
            parts={WINDOWS: [Folder(name=folder.name, rows=0)]},
            counts={"rows": before.count("rows") + counted["rows"], "late": before.count("late") + counted["late"]},
        )
        state.keep(manifest)
        return manifest

    def _merged(self, fresh: DataFrame, before: Manifest, state: BatchState) -> DataFrame:
        """The windows that were open and what this batch adds to them."""
        from pyspark.sql import functions as F

        both = fresh
        if before.folders(WINDOWS):
            stored = fresh.sparkSession.read.schema(fresh.schema).parquet(*state.paths(before.folders(WINDOWS)))
            both = stored.where(F.col(END) > before.watermark_ms if before.watermark_ms is not None else F.lit(True))
            both = both.unionByName(fresh)
        return self._joined(both, fresh)

    def _joined(self, both: DataFrame, fresh: DataFrame) -> DataFrame:
        """Parts of one window as one."""
        from pyspark.sql import functions as F

        merges = [self._merge(part, fresh) for part in self._parts]
        if self._flow.window.kind != "session":
            return both.groupBy(*self._by, START, END).agg(*merges).select(*fresh.columns)
        numbered, keys = join_sessions(both, self._by)
        ends = [F.min(START).alias(START), F.max(END).alias(END)]
        return numbered.groupBy(*keys).agg(*ends, *merges).select(*fresh.columns)

    def _merge(self, part: Part, fresh: DataFrame) -> Column:
        from pyspark.sql import functions as F
        from pyspark.sql.types import DecimalType

        kind = fresh.schema[part.column].dataType
        merged = F.expr(part.merge)
        # A sum of decimals is wider than they are: from batch to batch it would grow.
        return (merged.cast(kind) if isinstance(kind, DecimalType) else merged).alias(part.column)

    def _late_rows(self, rows: DataFrame, columns: list[str], before: Manifest) -> DataFrame:
        from pyspark.sql import functions as F

        watermark = F.timestamp_millis(F.lit(before.watermark_ms).cast("long"))
        reason = F.when(F.col(TIME).isNull(), "no event time").otherwise("window closed")
        found = rows.select(
            *columns,
            F.timestamp_millis(F.col(START)).alias("window_start"),
            F.timestamp_millis(F.col(END)).alias("window_end"),
            reason.alias("late_reason"),
            watermark.alias("watermark"),
            TIME,
        )
        if "event_date" not in columns:
            day = F.coalesce(F.to_date(TIME), F.to_date(watermark), F.lit("1970-01-01").cast("date"))
            found = found.withColumn("event_date", day)
        return found.drop(TIME)


class WindowSink:
    def __init__(self, flow: Aggregate, work: Path, outlet: Outlet | None = None) -> None:
        self._table, self._late = table_of(flow.table), table_of(flow.late)
        self._step = Aggregating(flow, kept_home(work, flow.name), self._table, self._late, outlet)

    def write(self, frame: DataFrame, query: str, batch: int, attempt: str) -> Written:
        kept = self._step.run(frame, query, batch, attempt)
        return Written(rows=kept.count("rows"), late=kept.count("late"), watermark_ms=kept.watermark_ms)

    def tables(self) -> list[LakeTable]:
        return [self._table, self._late]
