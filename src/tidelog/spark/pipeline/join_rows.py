"""The rows of a join of two streams as frames: both sides in one, their keys and times, pairs, and the tables' columns.

Nothing here knows of batches or files. Watermarks are given by side; a side that has none is not in the mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.kinds.columns import COORDINATES
from tidelog.spark.pipeline.kinds.join import SIDES, Interval, Join, Side
from tidelog.spark.pipeline.kinds.kind import PlanError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

SIDE: Final = "side"
KEY: Final = "_key"
MS: Final = "_ms"
PLACE: Final = (*COORDINATES, "timestamp")
MARK: Final = (SIDE, KEY, MS)
"""Rows of one side with the same key and time have the same partners: all of them are matched, or none."""


def both(flow: Join, left: DataFrame, right: DataFrame) -> DataFrame:
    """The rows of two streams as one: each with its key (null where a part of it is), its time in ms, its record's
    place, and itself in the column of its side."""
    from pyspark.sql import functions as F

    interval = flow.interval
    assert interval is not None
    sides = (left, right)
    for name, rows in zip(flow.inputs, sides, strict=True):
        if lacking := [column for column in PLACE if column not in rows.columns]:
            raise PlanError(f"{name!r} has no column {lacking[0]!r}; a joined row says of which records it is")
    kinds = _key_types(flow, left, right)
    found = []
    for number, (side, rows) in enumerate(zip(SIDES, sides, strict=True)):
        parts = [F.expr(pair[number]).cast(kind) for pair, kind in zip(flow.on, kinds, strict=True)]
        lacks: Column = reduce(or_, (part.isNull() for part in parts))
        key = F.struct(*(part.alias(f"k{n}") for n, part in enumerate(parts)))
        time = F.expr(interval.times[side]).cast("timestamp")
        whole = [F.struct("*") if one == side else F.lit(None).cast(sides[n].schema) for n, one in enumerate(SIDES)]
        found.append(
            rows.select(
                F.lit(side).alias(SIDE),
                F.when(~lacks, key).alias(KEY),
                F.unix_millis(time).alias(MS),
                *PLACE,
                *(column.alias(one) for column, one in zip(whole, SIDES, strict=True)),
            )
        )
    return found[0].unionByName(found[1])


def _key_types(flow: Join, left: DataFrame, right: DataFrame) -> list[DataType]:
    """Of both sides: what Spark would make of two types may fail on a value, in the middle of a stream."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import IntegralType, LongType, MapType

    sides = [
        rows.select(*(F.expr(pair[number]) for pair in flow.on)).schema.fields
        for number, rows in enumerate((left, right))
    ]
    kinds: list[DataType] = []
    for pair, ours, theirs in zip(flow.on, *sides, strict=True):
        one, other = ours.dataType, theirs.dataType
        if isinstance(one, IntegralType) and isinstance(other, IntegralType):
            kinds.append(LongType())
        elif one == other and not isinstance(one, MapType):
            kinds.append(one)
        else:
            raise PlanError(
                f"on: {pair[0]} is {one.simpleString()} and {pair[1]} is {other.simpleString()}; "
                "both must be of one type that can be compared, so write a CAST"
            )
    return kinds


def effective(interval: Interval, sides_ms: Mapping[str, int]) -> dict[Side, int]:
    """The watermarks that count, of those that the sides have come to."""
    if interval.watermark_of == "fastest" and sides_ms:
        return dict.fromkeys(SIDES, max(sides_ms.values()))
    return {side: sides_ms[side] for side in SIDES if side in sides_ms}


def by_side(make: Callable[[Side], Column]) -> Column:
    from pyspark.sql import functions as F

    return F.when(F.col(SIDE) == "left", make("left")).otherwise(make("right"))


def is_late(watermarks: Mapping[Side, int]) -> Column:
    from pyspark.sql import functions as F

    def older(side: Side) -> Column:
        return F.col(MS) < watermarks[side] if side in watermarks else F.lit(False)

    return F.col(MS).isNull() | by_side(older)


def is_over(interval: Interval, watermarks: Mapping[Side, int]) -> Column:
    """Whether no partner can come any more that would not be late itself."""
    from pyspark.sql import functions as F

    def over(side: Side) -> Column:
        other: Side = "right" if side == "left" else "left"
        if other not in watermarks:
            return F.lit(False)
        return F.col(MS) + F.lit(interval.reach_ms(side)) < watermarks[other]

    return by_side(over)


def pairs_of(interval: Interval, rows: DataFrame) -> DataFrame:
    """Rows (`_new`: of this batch) with their partners; those of two old rows were found before."""
    from pyspark.sql import functions as F

    left, right = (
        rows.where(F.col(SIDE) == side).select(
            KEY,
            *(F.col(name).alias(f"{side}_{name}") for name in PLACE),
            F.col(MS).alias(f"{side}_ms"),
            side,
            F.col("_new").alias(f"{side}_new"),
        )
        for side in SIDES
    )
    apart = F.col("right_ms") - F.col("left_ms")
    meet = apart.between(-interval.before_ms, interval.after_ms) & (F.col("left_new") | F.col("right_new"))
    return left.join(right, KEY).where(meet)


def marks_of(pairs: DataFrame) -> DataFrame:
    """Which rows have found a partner."""
    from pyspark.sql import functions as F

    left, right = (
        pairs.select(
            F.lit(side).alias(SIDE),
            KEY,
            F.col(f"{side}_ms").alias(MS),
        )
        for side in SIDES
    )
    return left.unionByName(right).distinct()


def pair_rows(pairs: DataFrame) -> DataFrame:
    """For the flow's table."""
    from pyspark.sql import functions as F

    return pairs.select(
        *(f"{side}_{name}" for side in SIDES for name in PLACE),
        *(F.timestamp_millis(F.col(f"{side}_ms")).alias(f"{side}_time") for side in SIDES),
        *SIDES,
        F.to_date(F.timestamp_millis(F.greatest("left_ms", "right_ms"))).alias("event_date"),
    )


def unmatched_rows(flow: Join, rows: DataFrame) -> DataFrame:
    """Of a side that the type of the join does not keep, only which record it was."""
    from pyspark.sql import functions as F

    interval = flow.interval
    assert interval is not None
    due = by_side(lambda side: F.col(MS) + F.lit(interval.reach_ms(side)))
    reason = F.when(F.col(KEY).isNull(), "no key").otherwise("no partner in time")
    return rows.select(
        SIDE,
        *PLACE,
        reason.alias("unmatched_reason"),
        F.timestamp_millis(F.col(MS)).alias("time"),
        F.timestamp_millis(due).alias("due"),
        *(F.when(F.lit(flow.keeps_unmatched(side)), F.col(side)).alias(side) for side in SIDES),
        F.to_date(F.timestamp_millis(F.col(MS))).alias("event_date"),
    )


def late_rows(rows: DataFrame, watermarks: Mapping[Side, int]) -> DataFrame:
    from pyspark.sql import functions as F

    watermark = by_side(lambda side: F.lit(watermarks.get(side)).cast("long"))
    reason = F.when(F.col(MS).isNull(), "no event time").otherwise("older than the watermark")
    day = F.to_date(F.timestamp_millis(F.coalesce(MS, F.lit(0))))
    return rows.select(
        SIDE,
        *PLACE,
        reason.alias("late_reason"),
        F.timestamp_millis(F.col(MS)).alias("time"),
        F.timestamp_millis(watermark).alias("watermark"),
        *SIDES,
        day.alias("event_date"),
    )
