"""Windows of event time as Spark expressions: which ones a row is in, and which sessions are one.

Windows are half open, in milliseconds since 1970: a row at the very end of one is in the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.kinds.aggregate import Window
from tidelog.spark.pipeline.measures import TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

START: Final = "_start_ms"
END: Final = "_end_ms"
_T: Final = f"unix_millis({TIME})"


def spread(frame: DataFrame, window: Window) -> DataFrame:
    """The rows, each once for every window it is in, with START and END; both null for a row without a time."""
    from pyspark.sql import functions as F

    if window.kind == "session":
        return frame.withColumn(START, F.expr(_T)).withColumn(END, F.expr(f"{_T} + {window.size_ms}L"))
    step_ms = window.step_ms or window.size_ms
    last = f"{_T} - pmod({_T}, {step_ms}L)"
    most = -(-window.size_ms // step_ms)
    starts = f"transform(sequence(0, {most - 1}), i -> {last} - i * {step_ms}L)"
    inside = f"filter({starts}, s -> s + {window.size_ms}L > {_T})"
    found = f"CASE WHEN {TIME} IS NOT NULL THEN {inside} END"
    return frame.withColumn(START, F.explode_outer(F.expr(found))).withColumn(END, F.col(START) + F.lit(window.size_ms))


def join_sessions(parts: DataFrame, by: list[str]) -> tuple[DataFrame, list[str]]:
    """Parts of sessions that overlap get one number; (the parts, the columns to group by)."""
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as F

    ordered = Over.partitionBy(*by, F.lit(0)).orderBy(START, END)
    before = F.max(END).over(ordered.rowsBetween(Over.unboundedPreceding, -1))
    opens = F.when(before.isNull() | (F.col(START) >= before), 1).otherwise(0)
    numbered = parts.withColumn("_opens", opens).withColumn("_session", F.sum("_opens").over(ordered))
    return numbered.drop("_opens"), [*by, "_session"]
