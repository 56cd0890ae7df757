"""Proof of a query joined with a table: its rows computed anew, each of which must be there with something or nothing
beside it.

What the looked-up table had at each batch is not known any more, so `right` itself is not judged. That each row of the
query came out, and that no others did, is: a row comes out once for every partner, or once without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.comparing import EXAMPLES, ID, alike, named_rows, with_id
from tidelog.spark.pipeline.kinds.join import Join
from tidelog.spark.pipeline.looking_up import looked_up
from tidelog.spark.pipeline.proof import Proof
from tidelog.spark.pipeline.proving import FAULTS, judged_by, require_repeatable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.spark.pipeline.recomputing import Recomputed

REMARK: Final = "not judged: the column right, as what the table had at each batch is not known any more"
_MATCHED: Final = "matched"
_WHOLE: Final = "_whole_id"


def prove_looked_up(anew: Recomputed, flow: Join) -> Proof:
    expected = looked_up(flow, anew.stream(), None).drop(_MATCHED)
    require_repeatable(expected)
    found = anew.rows(flow.table)
    left = sorted(expected.columns)
    ours, theirs = alike(expected, looked_up(flow, anew.stream(), None).limit(0) if found is None else found)
    return judged_by(anew, _proof(ours, theirs, left))


def _proof(ours: DataFrame, theirs: DataFrame, left: list[str]) -> Proof:
    from pyspark.sql import functions as F

    none = F.lit(0)
    by_row = with_id(ours, left).groupBy(ID).agg(F.count("*").alias("expected"))
    # A partner that is there more often than the row itself may be two equal rows of the table, or one written twice.
    whole = with_id(theirs).withColumnRenamed(ID, _WHOLE)
    partners = with_id(whole, left).groupBy(ID, _MATCHED, _WHOLE).agg(F.count("*").alias("times"))
    times = F.col("times")
    by_left = partners.groupBy(ID).agg(
        F.sum(times).alias("found"),
        F.sum(F.when(F.col(_MATCHED), none).otherwise(times)).alias("alone"),
        F.max(F.when(F.col(_MATCHED), times).otherwise(none)).alias("most"),
    )
    joined = by_row.join(by_left, ID, "full").na.fill(0).persist()
    try:
        wanted = F.col("expected")
        missing = F.greatest(wanted - F.col("found"), none)
        surplus = F.when(wanted == 0, F.col("found")).otherwise(F.greatest(F.col("alone") - wanted, none))
        twins = F.when(wanted > 0, F.greatest(F.col("most") - wanted, none)).otherwise(none)
        columns = {"expected": wanted, "rows": F.col("found"), "missing": missing, "surplus": surplus, "twins": twins}
        sums = joined.agg(*(F.coalesce(F.sum(one), none).alias(name) for name, one in columns.items())).first()
        assert sums is not None
        counts = sums.asDict()
        examples = [
            line
            for fault, column, side in (("missing", missing, ours), ("surplus", surplus, theirs))
            for line in named_rows(
                fault, side.select(*left), joined.where(column > 0), EXAMPLES if counts[fault] else 0
            )
        ]
    finally:
        joined.unpersist()
    unknown = (
        f"{counts['twins']} rows are there more often than the query gives them: "
        "the table that is looked up had equal rows, or they were written twice"
    )
    return Proof(
        counts={name: number for name, number in counts.items() if name != "twins"},
        faults=FAULTS,
        examples=tuple(examples),
        unknown=unknown if counts["twins"] else "",
        remarks=(REMARK,),
    )
