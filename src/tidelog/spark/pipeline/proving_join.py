"""Proof of a join of queries: its pairs and unmatched rows computed anew from all rows that are not in the late table.

A query may drop or multiply records, so what a side owes is told by its rows and not by the log's records. Which rows
are late depends on how the log was cut into batches; that much is taken from the late table, and that its rows are
of the log is proved too. All else is computed. A row that is not late finds all its partners, whatever the batches
were; one without a partner has come out if the other side's watermark, which is that of its latest row, has passed it.

    every row  =  in the late table  +  in pairs  +  unmatched  +  waiting
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.comparing import Difference, compare_rows, without
from tidelog.spark.pipeline.join_rows import (
    KEY,
    MARK,
    MS,
    SIDE,
    effective,
    is_over,
    marks_of,
    pair_rows,
    pairs_of,
    unmatched_rows,
)
from tidelog.spark.pipeline.kinds.columns import COORDINATES
from tidelog.spark.pipeline.kinds.join import SIDES, Interval, Join
from tidelog.spark.pipeline.model import Table
from tidelog.spark.pipeline.proof import Proof, UnprovableError
from tidelog.spark.pipeline.proving import judged_by, require_repeatable
from tidelog.spark.pipeline.recomputing import Recomputed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FAULTS: Final = ("missing", "surplus", "late surplus")
_TOLD: Final = (SIDE, *COORDINATES, MS, *SIDES)
"""What tells a late row: a query may make several of one record."""


def prove_pairs(anew: Recomputed, flow: Join, interval: Interval) -> Proof:
    rows = anew.stream()
    require_repeatable(rows)
    # Each step below would read and decode the log again, and a join asks for both its sides.
    rows = rows.persist()
    try:
        proof = _proof(anew, flow, interval, rows)
    finally:
        rows.unpersist()
    return judged_by(anew, proof)


def _proof(anew: Recomputed, flow: Join, interval: Interval, rows: DataFrame) -> Proof:
    from pyspark.sql import functions as F

    anew.tell("asking for the watermarks")
    latest = rows.where(F.col(MS).isNotNull()).groupBy(SIDE).agg(F.max(MS).alias(MS)).collect()
    watermarks = effective(interval, {row[SIDE]: row[MS] - interval.watermark_ms for row in latest})
    in_time, late, late_surplus = _without_late(rows, anew.rows(flow.late))
    in_time = in_time.persist()
    try:
        # Rows without a time are late in any batch: those that are left are in no table.
        lost = in_time.where(F.col(MS).isNull()).count()
        keyed = in_time.where(F.col(MS).isNotNull() & F.col(KEY).isNotNull())
        pairs = pairs_of(interval, keyed.withColumn("_new", F.lit(True)))
        over = keyed.where(is_over(interval, watermarks)).join(marks_of(pairs), list(MARK), "left_anti")
        no_key = in_time.where(F.col(MS).isNotNull() & F.col(KEY).isNull())
        joined = _compared(anew, pair_rows(pairs), flow.table)
        alone = over.select(*rows.columns).unionByName(no_key)
        unmatched = _compared(anew, unmatched_rows(flow, alone), flow.unmatched)
    finally:
        in_time.unpersist()
    counts = {
        "expected": joined.expected + unmatched.expected,
        "pairs": joined.found,
        "unmatched": unmatched.found,
        "late": late,
        "missing": joined.missing + unmatched.missing + lost,
        "surplus": joined.surplus + unmatched.surplus,
        "late surplus": late_surplus,
    }
    return Proof(counts=counts, faults=FAULTS, examples=(*joined.examples, *unmatched.examples))


def _without_late(rows: DataFrame, late: DataFrame | None) -> tuple[DataFrame, int, int]:
    """(the rows that came in time, late rows, late rows that the log does not have, or not so often)."""
    from pyspark.sql import functions as F

    if late is None:
        return rows, 0, 0
    if lacking := [name for name in (SIDE, *COORDINATES, "time", *SIDES) if name not in late.columns]:
        raise UnprovableError(f"the table of late rows has no column {lacking[0]}")
    theirs = late.select(SIDE, *COORDINATES, F.unix_millis("time").alias(MS), *SIDES)
    names = [f"_t_{name}" for name in _TOLD]
    copies = [F.col(name).cast(theirs.schema[name].dataType).alias(f"_t_{name}") for name in _TOLD]
    kept, counted, surplus = without(rows.select("*", *copies), theirs.toDF(*names), names)
    return kept.select(*rows.columns), counted, surplus


def _compared(anew: Recomputed, expected: DataFrame, table: Table) -> Difference:
    found = anew.rows(table)
    return compare_rows(expected, expected.limit(0) if found is None else found)
