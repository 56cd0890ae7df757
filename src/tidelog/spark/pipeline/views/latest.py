"""The last change of each key, and the table's rows by it.

The order of a key's changes: within a partition by offset. A key whose records lie in several partitions has them
ordered by time, then topic, partition and offset; where the time goes back within a partition, the latest time so far
counts, so that both rules agree. With that the last one so far is all that has to be kept, and in which batches the
records come makes no difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.kinds.view import COORDINATES, View
from tidelog.spark.pipeline.views.changes import OP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACE: Final = ("topic", "partition", "offset")
LATEST: Final = "_latest"
DELETED: Final = "_deleted"
_LAST: Final = "_last"


class LastChange:
    """State: of each key, deleted ones too, where its last change is. The values are in the table."""

    def __init__(self, flow: View) -> None:
        self._flow = flow
        self._keys = [column for column, _ in flow.key]

    def state(self, changes: DataFrame, before: DataFrame | None, newest_ms: int | None = None) -> DataFrame:
        """newest_ms: of the changes; what was deleted longer ago than `remember_deletes` before that is forgotten."""
        from pyspark.sql import functions as F

        fresh = changes.select(
            *self._keys,
            *PLACE,
            F.coalesce("timestamp", F.timestamp_millis(F.lit(0))).alias(LATEST),
            (F.col(OP) == "d").alias(DELETED),
        )
        both = fresh if before is None else before.select(*fresh.columns).unionByName(fresh)
        of_partition = both.groupBy(*self._keys, "topic", "partition").agg(
            F.max(LATEST).alias(LATEST), F.max(F.struct("offset", DELETED)).alias(_LAST)
        )
        place = F.struct(LATEST, "topic", "partition", f"{_LAST}.offset", f"{_LAST}.{DELETED}")
        last = of_partition.groupBy(*self._keys).agg(F.max(place).alias(_LAST))
        state = last.select(*self._keys, *(f"{_LAST}.{name}" for name in (*PLACE, LATEST, DELETED)))
        if newest_ms is None:
            return state
        since_ms = newest_ms - self._flow.remember_ms
        return state.where(~F.col(DELETED) | (F.unix_millis(LATEST) >= since_ms))

    def rows(self, state: DataFrame, changes: DataFrame, before: DataFrame | None) -> DataFrame:
        """Of what the table had and what has changed, the rows that the state says are the last."""
        from pyspark.sql import functions as F

        rows = changes.where(F.col(OP) != "d").drop(OP, "changed_at")
        if before is not None:
            rows = before.unionByName(rows, allowMissingColumns=True)
        live = state.where(~F.col(DELETED)).select(*PLACE)
        found = rows.join(live, list(PLACE), "left_semi")
        values = [name for name in found.columns if name not in (*self._keys, *COORDINATES)]
        return found.select(*self._keys, *values, *COORDINATES)
