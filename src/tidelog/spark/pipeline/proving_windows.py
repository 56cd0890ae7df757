"""Proof of an aggregate: its windows computed anew from all rows of the log that are not in the table of late rows.

Which rows are late depends on how the log was cut into batches, so that much is taken from the late table; that its
rows are of the log, and none is there more often than it should be, is proved too. All else is computed: the watermark
from the latest event time, which windows it has closed, and what is in each.

    every row, once for each of its windows  =  in the late table  +  in a window that is closed  +  in one that is open
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.spark.pipeline.aggregating import Aggregating
from tidelog.spark.pipeline.comparing import ID, alike, with_id, without
from tidelog.spark.pipeline.kinds.aggregate import Aggregate, Measure
from tidelog.spark.pipeline.measures import TIME
from tidelog.spark.pipeline.proof import Proof, UnprovableError
from tidelog.spark.pipeline.proving import COORDINATES, excused, judged_by, require_repeatable
from tidelog.spark.pipeline.recomputing import Recomputed
from tidelog.spark.pipeline.windows import END, START

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FAULTS: Final = ("missing", "wrong", "surplus", "late surplus")
EXAMPLES: Final = 5
RELATIVE: Final = 1e-9
ABSOLUTE: Final = 1e-9
"""Sums of floating numbers depend on their order."""
SKETCHED: Final = 0.1
"""approx_count_distinct is an estimate, and two ways to the same sketch may end in two of them."""
_EDGES: Final = ("window_start", "window_end")


def prove_windows(anew: Recomputed, flow: Aggregate) -> Proof:
    from pyspark.sql import functions as F

    unused: Any = None
    step = Aggregating(flow, Path(), unused, unused)
    frame = anew.stream(flow.reads)
    rows = step.spread(frame)
    # Of what is aggregated: the order of a set's members is another one each time, and nobody looks at it.
    arguments = [measure.argument for measure in flow.measures if measure.argument != "*"]
    require_repeatable(rows.select("*", *(F.expr(text) for text in (*arguments, *(text for _, text in flow.by)))))
    anew.tell("asking for the watermark")
    first = rows.agg(F.max(F.unix_millis(TIME))).first()
    watermark_ms = None if first is None or first[0] is None else first[0] - flow.watermark_ms
    late = anew.rows(flow.late)
    counted, late_surplus = 0, 0
    if late is not None:
        rows, counted, late_surplus = _without_late(rows, late, frame.columns)
    expected = step.closed(step.whole(rows).where(_is_closed(watermark_ms)))
    found = anew.rows(flow.table)
    compared = _compared(flow, expected, expected.limit(0) if found is None else found, counted, late_surplus)
    proof = judged_by(anew, compared)
    if proof.verdict != "off":
        return proof
    if flow.window.kind == "session" and found is not None and _has_torn_sessions(flow, found):
        return excused(proof, "a row came after its session was closed and began another that overlaps it")
    return proof


def _is_closed(watermark_ms: int | None) -> Column:
    from pyspark.sql import functions as F

    return F.lit(False) if watermark_ms is None else F.col(END) <= watermark_ms


def _without_late(rows: DataFrame, late: DataFrame, columns: list[str]) -> tuple[DataFrame, int, int]:
    """(the rows that are in windows, late rows, late rows that the log does not have, or not so often).

    A row is told by its coordinates and its window, or where it has none by all its columns."""
    from pyspark.sql import functions as F

    told = list(COORDINATES) if set(COORDINATES) <= set(columns) else columns
    if lacking := [name for name in (*told, *_EDGES) if name not in late.columns]:
        raise UnprovableError(f"the table of late rows has no column {lacking[0]}")
    names = [*(f"_t_{name}" for name in told), START, END]
    kinds = {name: late.schema[name].dataType for name in told}
    edges = [F.unix_millis(name).alias(edge) for name, edge in zip(_EDGES, (START, END), strict=True)]
    theirs = late.select(*(F.col(f"`{name}`").alias(f"_t_{name}") for name in told), *edges)
    copies = [F.col(f"`{name}`").cast(kind).alias(f"_t_{name}") for name, kind in kinds.items()]
    kept, counted, surplus = without(rows.select("*", *copies), theirs, names)
    return kept.select(*rows.columns), counted, surplus


def _compared(flow: Aggregate, expected: DataFrame, found: DataFrame, late: int, late_surplus: int) -> Proof:
    """Window by window."""
    from pyspark.sql import functions as F

    keys = [*_EDGES, *(column for column, _ in flow.by)]
    names = [measure.name for measure in flow.measures]
    ours, theirs = alike(expected.select(*keys, *names), found.select(*keys, *names))

    def side(frame: DataFrame, sign: int) -> DataFrame:
        made = with_id(frame, keys)
        return made.select(
            ID, F.lit(sign).alias("_side"), F.struct(*keys).alias("_key"), F.struct(*names).alias("_has")
        )

    def only(sign: int) -> Column:
        return F.first(F.when(F.col("_side") == sign, F.col("_has")), ignorenulls=True)

    windows = (
        side(ours, 1)
        .unionAll(side(theirs, -1))
        .groupBy(ID)
        .agg(
            F.count_if(F.col("_side") > 0).alias("_expected"),
            F.count_if(F.col("_side") < 0).alias("_found"),
            F.first("_key").alias("_key"),
            only(1).alias("_ours"),
            only(-1).alias("_theirs"),
        )
    )
    same = F.lit(True)
    for measure in flow.measures:
        same = same & _is_same(measure, ours)
    missing = (F.col("_expected") > 0) & (F.col("_found") == 0)
    surplus = F.greatest(F.col("_found") - F.col("_expected"), F.lit(0))
    wrong = (F.col("_expected") > 0) & (F.col("_found") > 0) & ~same
    judged = windows.select("*", missing.alias("_missing"), wrong.alias("_wrong"), surplus.alias("_surplus"))
    sums = judged.agg(
        *(F.coalesce(F.sum(name), F.lit(0)) for name in ("_expected", "_found")),
        F.count_if("_missing"),
        F.count_if("_wrong"),
        F.coalesce(F.sum("_surplus"), F.lit(0)),
    ).first()
    assert sums is not None
    counts = {
        "expected": sums[0],
        "windows": sums[1],
        "late": late,
        "missing": sums[2],
        "wrong": sums[3],
        "surplus": sums[4],
        "late surplus": late_surplus,
    }
    is_off = sums[2] or sums[3] or sums[4]
    return Proof(counts=counts, faults=FAULTS, examples=_named(judged) if is_off else ())


def _is_same(measure: Measure, frame: DataFrame) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import DoubleType, FloatType

    ours, theirs = F.col(f"_ours.`{measure.name}`"), F.col(f"_theirs.`{measure.name}`")
    equal = ours.eqNullSafe(theirs)
    largest = F.greatest(F.abs(ours), F.abs(theirs))
    if measure.function == "approx_count_distinct":
        return equal | F.coalesce(F.abs(ours - theirs) <= largest * SKETCHED, F.lit(False))
    if isinstance(frame.schema[measure.name].dataType, DoubleType | FloatType):
        near = F.abs(ours - theirs) <= largest * RELATIVE + ABSOLUTE
        return equal | F.coalesce(near, F.lit(False))
    return equal


def _named(judged: DataFrame) -> tuple[str, ...]:
    from pyspark.sql import functions as F

    fault = F.when(F.col("_missing"), "missing").when(F.col("_wrong"), "wrong").when(F.col("_surplus") > 0, "surplus")
    off = judged.withColumn("_fault", fault).where(F.col("_fault").isNotNull())
    rows = off.select(
        "_fault", F.to_json("_key").alias("key"), F.to_json("_ours").alias("ours"), F.to_json("_theirs").alias("theirs")
    )
    lines = []
    for row in rows.orderBy("_fault", "key").limit(EXAMPLES).collect():
        said = [f"expected {row['ours']}"] if row["ours"] is not None else []
        said += [f"found {row['theirs']}"] if row["theirs"] is not None else []
        lines.append(f"{row['_fault']}: {row['key']} {', '.join(said)}")
    return tuple(lines)


def _has_torn_sessions(flow: Aggregate, found: DataFrame) -> bool:
    """A session that is closed takes no more rows; one that is not late itself may yet touch it, and begins anew."""
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as F

    ordered = Over.partitionBy(*(column for column, _ in flow.by), F.lit(0)).orderBy(*_EDGES)
    before = F.max("window_end").over(ordered.rowsBetween(Over.unboundedPreceding, -1))
    return not found.withColumn("_before", before).where(F.col("_before") > F.col("window_start")).isEmpty()
