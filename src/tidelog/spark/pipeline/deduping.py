"""One batch of a dedupe: every row goes into the table, into that of the duplicates, or into that of late rows.

    a row is late         when its time is older than the watermark of the batch before, or it has none: whether its key
                          was there before cannot be told any more
    a row is a duplicate  when a row of its key is remembered, or another row of its key in this batch stands before it
                          by topic, partition and offset; one whose key has a null is nobody's duplicate
    a key is remembered   from its first row on, until the watermark has passed that row's time and `watermark`
    watermark             the latest event time so far less `watermark`; it never goes back

So a row that is not late, and not further than `watermark` from the first one of its key, is always recognised.

What a batch does, in this order; each step once however often the batch is repeated (batch_state.py, lake.md):

    died after                                  the batch is repeated and
    keys written to a folder of its own         writes them again elsewhere; no manifest names the old folder
    late rows, duplicates, rows appended        finds those tables done by (query, batch), and appends to the others
    the manifest put in place                   starts from the manifest before it, and finds all tables done
Splits are the same each time: they depend on the state before the batch, and on an order that the rows have themselves.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidelog.spark.pipeline.batch_state import BatchState, Folder, Manifest, Terms, kept_home, later, small_ones
from tidelog.spark.pipeline.kinds.columns import COORDINATES
from tidelog.spark.pipeline.kinds.dedupe import Dedupe
from tidelog.spark.pipeline.rows import FEW_ROWS, asked_for, dated, tie_break
from tidelog.spark.pipeline.sinks import Written, table_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidelog.spark.lake import LakeTable

KEYS: Final = "keys"
KEY: Final = "dedupe_key"
FIRST: Final = tuple(f"first_{name}" for name in COORDINATES)
RESERVED: Final = (KEY, *FIRST, "late_reason", "watermark", "_time", "_first", "_number", "_remembered")


class Deduping:
    def __init__(self, flow: Dedupe, home: Path, table: LakeTable, duplicates: LakeTable, late: LakeTable) -> None:
        self._flow = flow
        self._home = home
        self._table = table
        self._duplicates = duplicates
        self._late = late

    def keyed(self, frame: DataFrame) -> DataFrame:
        """With the event time, and the key: null where a part of it is."""
        from pyspark.sql import functions as F

        parts = [F.expr(expression) for _, expression in self._flow.by]
        names = [column for column, _ in self._flow.by]
        whole = F.struct(*(part.alias(name) for part, name in zip(parts, names, strict=True)))
        lacks: Column = reduce(or_, (part.isNull() for part in parts))
        time = F.expr(self._flow.time).cast("timestamp")
        return frame.withColumn("_time", time).withColumn(KEY, F.when(~lacks, whole))

    def judged(self, rows: DataFrame, remembered: DataFrame | None, is_few: bool = False) -> DataFrame:
        """Rows with a key; `_first` is where the first row of the key is, of a row that is not that one."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        place = F.struct(*COORDINATES)
        ordered = Window.partitionBy(KEY).orderBy(*COORDINATES, tie_break(rows))
        found = rows.withColumn("_number", F.row_number().over(ordered)).withColumn(
            "_first", F.first(place).over(ordered)
        )
        here = F.when(F.col("_number") > 1, F.col("_first"))
        if remembered is None:
            return found.withColumn("_first", here)
        known = asked_for(remembered.select(KEY, place.alias("_remembered")), rows, KEY, is_few)
        return found.join(known, KEY, "left").withColumn("_first", F.coalesce("_remembered", here))

    def terms(self, frame: DataFrame) -> Terms:
        flow = self._flow
        definition = {"from": flow.reads, "by": flow.by, "time": flow.time, "watermark": flow.watermark_ms}
        return Terms(definition, {KEYS: self._remembering(self.keyed(frame)).schema.jsonValue()})

    def state(self, query: str, frame: DataFrame) -> BatchState:
        return BatchState(self._home / query, self.terms(frame))

    def run(self, frame: DataFrame, query: str, batch: int, attempt: str) -> Manifest:
        from pyspark.sql import functions as F

        state = self.state(query, frame)
        before = state.before(batch)
        rows = self.keyed(frame).persist()
        is_late = F.col("_time").isNull()
        if before.watermark_ms is not None:
            is_late = is_late | (F.unix_millis("_time") < before.watermark_ms)
        has_key = ~is_late & F.col(KEY).isNotNull()
        counted = _counted(rows, is_late)
        remembered = self._remembered(rows, state, before)
        judged = self.judged(rows.where(has_key), remembered, counted["rows"] <= FEW_ROWS).persist()
        try:
            found = {**counted, **_judged(judged)}
            watermark_ms = later(before.watermark_ms, found["latest"], self._flow.watermark_ms)
            keys = self._keep_keys(judged, state, before, found, watermark_ms, batch, attempt)
            once: dict[str, Any] = {"query": query, "batch": batch}
            if found["late"]:
                self._late.append(self._late_rows(rows.where(is_late), frame.columns, before), **once)
            if found["duplicates"]:
                self._duplicates.append(self._duplicate_rows(judged, frame.columns), **once)
            if found["rows"] > found["late"] + found["duplicates"]:
                first = judged.where(F.col("_first").isNull())
                kept = first.select(*frame.columns, "_time").unionByName(
                    rows.where(~is_late & F.col(KEY).isNull()).select(*frame.columns, "_time")
                )
                self._table.append(dated(kept, frame.columns), **once)
            manifest = _after(before, batch, watermark_ms, keys, found)
            state.keep(manifest)
            return manifest
        finally:
            judged.unpersist()
            rows.unpersist()

    def _remembering(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return rows.select(KEY, F.unix_millis("_time").alias("time_ms"), *COORDINATES)

    def _remembered(self, rows: DataFrame, state: BatchState, before: Manifest) -> DataFrame | None:
        """Keys that a row of this batch may repeat, with the places of their first rows."""
        if not before.folders(KEYS):
            return None
        return self._stored(rows, state, before.folders(KEYS), before.watermark_ms)

    def _stored(self, rows: DataFrame, state: BatchState, folders: list[Folder], watermark_ms: int | None) -> DataFrame:
        from pyspark.sql import functions as F

        schema = self._remembering(rows).schema
        stored = rows.sparkSession.read.schema(schema).parquet(*state.paths(folders))
        oldest_ms = None if watermark_ms is None else watermark_ms - self._flow.watermark_ms
        return stored if oldest_ms is None else stored.where(F.col("time_ms") >= oldest_ms)

    def _keep_keys(
        self,
        judged: DataFrame,
        state: BatchState,
        before: Manifest,
        found: dict[str, Any],
        watermark_ms: int | None,
        batch: int,
        attempt: str,
    ) -> list[Folder]:
        """The folders after this batch: what is new in one of its own, with small ones merged into it."""
        from pyspark.sql import functions as F

        oldest_ms = None if watermark_ms is None else watermark_ms - self._flow.watermark_ms
        alive = [
            folder
            for folder in before.folders(KEYS)
            if oldest_ms is None or folder.latest_ms is None or folder.latest_ms >= oldest_ms
        ]
        merged = small_ones(alive)
        if not found["keys"] and not merged:
            return alive
        fresh = self._remembering(judged.where(F.col("_first").isNull()))
        if merged:
            fresh = fresh.unionByName(self._stored(judged, state, merged, watermark_ms))
        path = state.folder(batch, attempt, KEYS)
        fresh.write.parquet(str(path))
        latest = [ms for ms in (found["latest_key"], *(one.latest_ms for one in merged)) if ms is not None]
        rows = found["keys"] + sum(one.rows for one in merged)
        one = Folder(name=path.name, rows=rows, latest_ms=max(latest, default=None))
        return [*(folder for folder in alive if folder not in merged), one]

    def _duplicate_rows(self, judged: DataFrame, columns: list[str]) -> DataFrame:
        from pyspark.sql import functions as F

        places = [F.col(f"_first.{name}").alias(first) for name, first in zip(COORDINATES, FIRST, strict=True)]
        found = judged.where(F.col("_first").isNotNull()).select(*columns, KEY, *places, "_time")
        return dated(found, [*columns, KEY, *FIRST])

    def _late_rows(self, rows: DataFrame, columns: list[str], before: Manifest) -> DataFrame:
        from pyspark.sql import functions as F

        watermark = F.timestamp_millis(F.lit(before.watermark_ms).cast("long"))
        reason = F.when(F.col("_time").isNull(), "no event time").otherwise("older than the watermark")
        found = rows.select(*columns, reason.alias("late_reason"), watermark.alias("watermark"), "_time")
        return dated(found, [*columns, "late_reason", "watermark"])


def _counted(rows: DataFrame, is_late: Column) -> dict[str, Any]:
    from pyspark.sql import functions as F

    found = rows.agg(
        F.max(F.unix_millis("_time")).alias("latest"), F.count("*").alias("rows"), F.count_if(is_late).alias("late")
    ).first()
    assert found is not None
    return dict(found.asDict())


def _judged(judged: DataFrame) -> dict[str, Any]:
    from pyspark.sql import functions as F

    is_first = F.col("_first").isNull()
    found = judged.agg(
        F.count_if(~is_first).alias("duplicates"),
        F.count_if(is_first).alias("keys"),
        F.max(F.when(is_first, F.unix_millis("_time"))).alias("latest_key"),
    ).first()
    assert found is not None
    return dict(found.asDict())


def _after(
    before: Manifest, batch: int, watermark_ms: int | None, keys: list[Folder], found: dict[str, Any]
) -> Manifest:
    added = {
        "rows": found["rows"] - found["late"] - found["duplicates"],
        "late": found["late"],
        "duplicates": found["duplicates"],
    }
    return msgspec.structs.replace(
        before,
        batch=batch,
        watermark_ms=watermark_ms,
        parts={KEYS: keys},
        counts={name: before.count(name) + number for name, number in added.items()},
    )


class DedupeSink:
    def __init__(self, flow: Dedupe, work: Path) -> None:
        self._tables = [table_of(table) for table in (flow.table, flow.duplicates, flow.late)]
        self._step = Deduping(flow, kept_home(work, flow.name), *self._tables)

    def write(self, frame: DataFrame, query: str, batch: int, attempt: str) -> Written:
        kept = self._step.run(frame, query, batch, attempt)
        return Written(
            rows=kept.count("rows"),
            late=kept.count("late"),
            watermark_ms=kept.watermark_ms,
            aside={"duplicates": kept.count("duplicates")},
        )

    def tables(self) -> list[LakeTable]:
        return self._tables
