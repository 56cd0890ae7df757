"""Rows that stay: of records before the point from which a flow is rebuilt, out of the live table into the shadow's.

They do not change any more, as the live flow is past that point; so it does not matter when they are taken. With them
the shadow is the whole table, and one commit swaps it in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.model import Flow
from tidelog.spark.pipeline.reprocess.since import ReprocessError
from tidelog.spark.pipeline.sinks import table_of

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from tidelog.spark.link import At

COORDINATES: Final = ("topic", "partition", "offset")
KEPT: Final = "tidelog-kept"
"""The id under which they are in the shadow's table, as batch 0: once, however often it is tried."""


def keep_before(spark: SparkSession, live: Flow, shadow: Flow, starts: Mapping[At, int]) -> int:
    """How many there are."""
    from tidelog.spark.lake.frames import frame_of

    frame = frame_of(spark, table_of(live.table).snapshot())
    if frame is None:
        return 0
    return table_of(shadow.table).append(frame.where(_is_before(starts)), query=KEPT, batch=0).rows


def check_coordinates(live: Flow) -> None:
    """ReprocessError when its rows do not say which records they are of."""
    schema = table_of(live.table).snapshot().schema
    if schema is not None and (lacking := [name for name in COORDINATES if name not in schema.names]):
        raise ReprocessError(
            f"the table of {live.name!r} has no {', '.join(lacking)}, by which the rows before --since could be told: "
            "it can only be rebuilt as a whole"
        )


def has_kept(shadow: Flow) -> bool:
    return KEPT in table_of(shadow.table).describe().batches


def _is_before(starts: Mapping[At, int]) -> Column:
    """Of partitions that are not read any more, all rows stay."""
    from pyspark.sql import functions as F

    is_new = F.lit(False)
    for (topic, number), start in starts.items():
        at = (F.col("topic") == topic) & (F.col("partition") == number)
        is_new = is_new | (at & (F.col("offset") >= start))
    return ~is_new
