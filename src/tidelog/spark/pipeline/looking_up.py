"""One batch of a join with a table: each row with what the table has for its key when the batch is written.

There is no state, and one table is written to, once: a batch that is repeated after a crash looks the table up anew,
and nothing of the first attempt can be seen. Rows without a partner are in the same table for that reason: in two
tables, a row whose partner came between two attempts could be in neither or in both.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from tidelog.spark.pipeline.join_rows import PLACE
from tidelog.spark.pipeline.kinds.join import Join, Lookup
from tidelog.spark.pipeline.kinds.kind import PlanError
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.sinks import Written, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.spark.lake import LakeTable


def check_left(flow: Join, frame: DataFrame) -> None:
    from pyspark.sql import functions as F

    lacking = [column for column in PLACE if column not in frame.columns]
    if lacking:
        raise PlanError(f"{flow.left!r} has no column {lacking[0]!r}; a joined row says of which record it is")
    frame.select(*(F.expr(left) for left, _ in flow.on))


def looked_up(flow: Join, rows: DataFrame, table: DataFrame | None) -> DataFrame:
    """The rows of the flow's table; without the column `right` while there is no table to look up."""
    from pyspark.sql import functions as F

    keys = [F.expr(left).alias(f"_k{n}") for n, (left, _) in enumerate(flow.on)]
    left = rows.select(
        *keys, *(F.col(name).alias(f"left_{name}") for name in PLACE), F.struct(*rows.columns).alias("left")
    )
    date = F.to_date("left.event_date" if "event_date" in rows.columns else "left_timestamp").alias("event_date")
    columns = [*(f"left_{name}" for name in PLACE), "left"]
    if table is None:
        return left.select(*columns, F.lit(False).alias("matched"), date)
    theirs = [F.expr(right).alias(f"_t{n}") for n, (_, right) in enumerate(flow.on)]
    right = table.select(*theirs, F.struct(*table.columns).alias("right"))
    _same_types(flow, left, right)
    equal = reduce(and_, (left[f"_k{n}"] == right[f"_t{n}"] for n in range(len(flow.on))))
    return left.join(right, equal, "left").select(*columns, "right", F.col("right").isNotNull().alias("matched"), date)


def _same_types(flow: Join, left: DataFrame, right: DataFrame) -> None:
    from pyspark.sql.types import IntegralType

    for n, pair in enumerate(flow.on):
        one, other = left.schema[f"_k{n}"].dataType, right.schema[f"_t{n}"].dataType
        if one != other and not (isinstance(one, IntegralType) and isinstance(other, IntegralType)):
            raise PlanError(
                f"on: {pair[0]} is {one.simpleString()} and {pair[1]} is {other.simpleString()}; write a CAST"
            )


class LookupSink:
    def __init__(self, flow: Join, pipeline: Pipeline) -> None:
        lookup = flow.right
        assert isinstance(lookup, Lookup)
        found = pipeline.flows[lookup.flow].table if lookup.flow is not None else lookup.table
        assert found is not None
        self._flow = flow
        self._table = table_of(flow.table)
        self._other = table_of(found)
        self._rows = 0

    def write(self, frame: DataFrame, query: str, batch: int, attempt: str) -> Written:
        from tidelog.spark.lake.frames import frame_of

        rows = looked_up(self._flow, frame, frame_of(frame.sparkSession, self._other.snapshot()))
        self._rows += self._table.append(rows, query=query, batch=batch).rows
        return Written(rows=self._rows)

    def tables(self) -> list[LakeTable]:
        return [self._table]
