"""Records as changes of a view: the key, what happens to it, the value's columns, where and when.

Pure expressions over a stream's columns. A record that changes nothing is not dropped: it has a reason, and goes to
the table of those that were not applied.

    op    u, c, r   the key has these values from now on (c and r only of Debezium: created, read in a snapshot)
          d         the key is gone
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.kinds.kind import PlanError
from tidelog.spark.pipeline.kinds.view import COORDINATES, RESERVED, View

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OP: Final = "op"
TIME: Final = "changed_at"
REASON: Final = "aside_reason"
ROW: Final = "row"
"""Of Debezium: the row after the change, or before it where it was deleted."""
_TAKEN: Final = (REASON, "_op", "_envelope")


class Reading:
    def __init__(self, flow: View) -> None:
        self._flow = flow

    def judged(self, frame: DataFrame) -> DataFrame:
        """The stream's rows, with the operation, and the reason of those that cannot be applied."""
        from pyspark.sql import functions as F

        self._require(frame)
        if self._flow.envelope == "debezium":
            return self._unwrapped(frame)
        no_key = F.when(self._no_key(), F.lit("no key"))
        reason = no_key
        if self._flow.fold and "payload_error" in frame.columns:
            broken = F.when(F.col("payload_error").isNotNull(), F.concat(F.lit("payload: "), "payload_error"))
            reason = F.coalesce(no_key, broken)
        op = F.when(self._deleted(frame), F.lit("d")).otherwise(F.lit("u"))
        return frame.withColumn("_op", op).withColumn(REASON, reason)

    def applied(self, judged: DataFrame) -> DataFrame:
        """The changes, of rows that were judged."""
        from pyspark.sql import functions as F

        time = F.coalesce(F.expr(self._flow.time).cast("timestamp"), F.col("timestamp"))
        return judged.where(F.col(REASON).isNull()).select(
            *(F.expr(expression).alias(column) for column, expression in self._flow.key),
            F.col("_op").alias(OP),
            *self._values(judged),
            *COORDINATES,
            time.alias(TIME),
        )

    def changes(self, frame: DataFrame) -> DataFrame:
        return self.applied(self.judged(frame))

    def unapplied(self, judged: DataFrame, columns: list[str]) -> DataFrame:
        """The other rows, with all the columns they came with."""
        from pyspark.sql import functions as F

        found = judged.where(F.col(REASON).isNotNull()).select(*columns, REASON)
        return found if "event_date" in columns else found.withColumn("event_date", F.to_date("timestamp"))

    def _require(self, frame: DataFrame) -> None:
        reads = self._flow.reads
        if lacking := [column for column in COORDINATES if column not in frame.columns]:
            raise PlanError(
                f"{reads!r} has no column {lacking[0]!r}; the order of a key's changes is told by "
                f"{', '.join(COORDINATES)}"
            )
        own = (*_TAKEN, ROW) if self._flow.envelope == "debezium" else _TAKEN
        if taken := [column for column in own if column in frame.columns]:
            raise PlanError(f"{reads!r} has a column {taken[0]!r}, which a view needs for itself")

    def _no_key(self) -> Column:
        from pyspark.sql import functions as F

        return reduce(and_, (F.expr(expression).isNull() for _, expression in self._flow.key))

    def _deleted(self, frame: DataFrame) -> Column:
        from pyspark.sql import functions as F

        if self._flow.deletes is not None:
            return F.coalesce(F.expr(self._flow.deletes).cast("boolean"), F.lit(False))
        value = next((column for column in ("value", "payload") if column in frame.columns), None)
        return F.lit(False) if value is None else F.col(value).isNull()

    def _values(self, judged: DataFrame) -> list[Column]:
        from pyspark.sql import functions as F

        if self._flow.fold:
            return [
                (F.lit(1) if measure.argument == "*" else F.expr(measure.argument)).alias(measure.name)
                for measure in self._flow.fold
            ]
        if self._flow.columns:
            return [F.expr(expression).alias(column) for column, expression in self._flow.columns]
        return self._all_values(judged)

    def _all_values(self, judged: DataFrame) -> list[Column]:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        keys = [column for column, _ in self._flow.key]
        if self._flow.envelope == "debezium":
            fields, path = _struct(judged, "_envelope.after"), "_envelope.after"
        elif "payload" in judged.columns and isinstance(judged.schema["payload"].dataType, StructType):
            fields, path = _struct(judged, "payload"), "payload"
        elif "value" in judged.columns:
            return [F.col("value")] if "value" not in keys else []
        else:
            own = {*COORDINATES, *_TAKEN, *keys, "key", "timestampType", "headers", "event_date"}
            return [F.col(f"`{column}`") for column in judged.columns if column not in own]
        if taken := [name for name in fields if name in RESERVED]:
            raise PlanError(
                f"{path.replace('_envelope', 'payload')} has a field {taken[0]!r}, and the table a column of that name "
                "already; name the fields by 'columns'"
            )
        values = [F.col(f"{path}.`{name}`").alias(name) for name in fields if name not in keys]
        if "payload_error" in judged.columns and self._flow.envelope == "plain" and "payload_error" not in fields:
            values.append(F.col("payload_error"))
        return values

    # Debezium

    def _unwrapped(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        path = self._envelope(frame)
        wide = frame.withColumn("_envelope", F.col(path))
        wide = wide.withColumn(ROW, F.coalesce(F.col("_envelope.after"), F.col("_envelope.before")))
        # The tombstone after a delete, for the log cleaner: it deletes once more, and has nothing else in it.
        is_tombstone = F.col("value").isNull() if "value" in frame.columns else F.lit(False)
        op, after = F.col("_envelope.op"), F.col("_envelope.after")
        reason = (
            F.when(~is_tombstone & op.isNull(), F.lit("no Debezium envelope"))
            .when(~is_tombstone & ~op.isin("c", "r", "u", "d"), F.concat(F.lit("no change of a row: op "), op))
            .when(~is_tombstone & (op != "d") & after.isNull(), F.lit("no row after the change"))
            .when(self._no_key(), F.when(is_tombstone, F.lit("tombstone")).otherwise(F.lit("no key")))
        )
        return wide.withColumn("_op", F.when(is_tombstone, F.lit("d")).otherwise(op)).withColumn(REASON, reason)

    def _envelope(self, frame: DataFrame) -> str:
        """Where it is: with Connect's schemas.enable the envelope is one level further in."""
        for path in ("payload", "payload.payload"):
            if {"op", "before", "after"} <= set(_struct(frame, path)):
                return path
        raise PlanError(
            f"{self._flow.reads!r} has no payload with op, before and after; a Debezium envelope is decoded with "
            'schema: "op STRING, before STRUCT<...>, after STRUCT<...>"'
        )


def _struct(frame: DataFrame, path: str) -> list[str]:
    """The fields of a struct; none where it is not one."""
    from pyspark.sql.types import DataType, StructType

    kind: DataType = frame.schema
    for name in path.split("."):
        if not isinstance(kind, StructType) or name not in kind.names:
            return []
        kind = kind[name].dataType
    return kind.names if isinstance(kind, StructType) else []
