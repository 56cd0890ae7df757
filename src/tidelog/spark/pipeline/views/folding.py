"""What the events of each key add up to: measures as an aggregate has them, kept as parts.

An event without a value (a tombstone) ends what was before it: the key begins anew with the next one. The order of a
key's events is that of latest.py; only `first`, `last` and tombstones depend on it. State: of each key its parts and
the place of its last event.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.kinds.view import COORDINATES, View
from tidelog.spark.pipeline.measures import TIME, Part, kept
from tidelog.spark.pipeline.views.changes import OP
from tidelog.spark.pipeline.views.latest import LATEST

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LAST: Final = "_last"
_STATE: Final = "s"  # as an operation: what was kept, among the events


class Folding:
    def __init__(self, flow: View) -> None:
        self._keys = [column for column, _ in flow.key]
        # Arguments were evaluated when the change was read, under the name of their measure.
        self._measures = {
            measure.name: replace(measure, name=f"part_{measure.name}", argument=f"`{measure.name}`")
            for measure in flow.fold
        }
        self._parts: list[Part] = [part for measure in self._measures.values() for part in kept(measure).parts]

    def state(self, changes: DataFrame, before: DataFrame | None, newest_ms: int | None = None) -> DataFrame:
        from pyspark.sql import functions as F

        events = changes.withColumn(LATEST, F.coalesce("timestamp", F.timestamp_millis(F.lit(0))))
        schema = self._partial(self._placed(events)).schema
        if before is not None:
            names = [part.column for part in self._parts]
            place = [F.col(f"{LAST}.{name}").alias(name) for name in (LATEST, *COORDINATES)]
            stored = before.select(*self._keys, F.lit(_STATE).alias(OP), *names, *place)
            events = events.unionByName(stored, allowMissingColumns=True)
        going_on = self._going_on(self._placed(events))
        fresh = self._partial(going_on.where(F.col(OP) != _STATE))
        if before is None:
            return fresh
        earlier = going_on.where(F.col(OP) == _STATE).withColumn(LAST, F.col(TIME)).select(*fresh.columns)
        merges = [self._merge(part, fresh) for part in self._parts]
        merged = fresh.unionByName(earlier).groupBy(*self._keys).agg(*merges, F.max(LAST).alias(LAST))
        return merged.select(*schema.names)

    def rows(self, state: DataFrame, changes: DataFrame, before: DataFrame | None) -> DataFrame:
        from pyspark.sql import functions as F

        return state.select(
            *self._keys,
            *(F.expr(kept(measure).final).alias(name) for name, measure in self._measures.items()),
            *(F.col(f"{LAST}.{name}").alias(name) for name in COORDINATES),
        )

    def _placed(self, events: DataFrame) -> DataFrame:
        """With the place of each in its key's order."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        so_far = Window.partitionBy(*self._keys, "topic", "partition").orderBy("offset")
        latest = F.max(LATEST).over(so_far.rowsBetween(Window.unboundedPreceding, Window.currentRow))
        return events.withColumn(LATEST, latest).withColumn(TIME, F.struct(LATEST, *COORDINATES))

    def _going_on(self, events: DataFrame) -> DataFrame:
        """Those that no later tombstone has ended."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        ended = F.max(F.when(F.col(OP) == "d", F.col(TIME))).over(Window.partitionBy(*self._keys))
        found = events.withColumn("_ended", ended).where(F.col(OP) != "d")
        return found.where(F.col("_ended").isNull() | (F.col(TIME) > F.col("_ended"))).drop("_ended")

    def _partial(self, events: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        parts = [F.expr(part.partial).alias(part.column) for part in self._parts]
        return events.groupBy(*self._keys).agg(*parts, F.max(TIME).alias(LAST))

    def _merge(self, part: Part, fresh: DataFrame) -> Column:
        from pyspark.sql import functions as F
        from pyspark.sql.types import DecimalType

        kind = fresh.schema[part.column].dataType
        merged = F.expr(part.merge)
        # A sum of decimals is wider than they are: from batch to batch it would grow.
        return (merged.cast(kind) if isinstance(kind, DecimalType) else merged).alias(part.column)
