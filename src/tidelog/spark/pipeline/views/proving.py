"""Proof of a view: what the log comes to, computed anew, must be what its tables hold.

A compacted log still proves the view, as the last record of each key stays in it. Only where the flow is behind may
the cleaner have taken a record that is the last for the flow, because a later one lies beyond what it has read; and
what retention took may be a key's last. Rows of such records are not judged; all others are. A fold needs every record.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.comparing import Difference, compare_rows
from tidelog.spark.pipeline.kinds.view import BUCKET, View
from tidelog.spark.pipeline.proof import Proof
from tidelog.spark.pipeline.proving import judged_by, require_repeatable
from tidelog.spark.pipeline.proving_publish import prove_changelog, with_published
from tidelog.spark.pipeline.recomputing import Recomputed
from tidelog.spark.pipeline.views.changes import Reading
from tidelog.spark.pipeline.views.latest import PLACE
from tidelog.spark.pipeline.views.publishing import DELETED, published, sent
from tidelog.spark.pipeline.views.steps import view_of
from tidelog.spark.pipeline.views.viewing import dated

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RELATIVE: Final = 1e-9
ABSOLUTE: Final = 1e-9
"""Sums of floating numbers depend on their order."""
SKETCHED: Final = 0.1
"""approx_count_distinct is an estimate, and two ways to the same sketch may end in two of them."""
ROWS: Final = "rows"
LOOKS: Final = 3
"""At a compacted log, before its rows are called off."""


def prove_view(anew: Recomputed, flow: View) -> Proof:
    proved = _prove_tables(anew, flow)
    rows = anew.rows(flow.table)
    if flow.publish is None or rows is None:
        return proved
    from pyspark.sql import functions as F

    # What the table has is proved, so it is what the last records of the topic must be.
    live = published(flow.publish, rows.drop(BUCKET).withColumn(DELETED, F.lit(False)))
    return with_published(proved, prove_changelog(anew, live, sent(flow.publish)))


def _prove_tables(anew: Recomputed, flow: View) -> Proof:
    frame = anew.stream()
    reading = Reading(flow)
    judged = reading.judged(frame)
    changes = reading.applied(judged)
    require_repeatable(changes)
    expected, found = _pair(view_of(flow, changes), anew.rows(flow.table))
    pairs = {ROWS: (expected, found.drop(BUCKET))}
    if flow.changes is not None:
        pairs["changes"] = _pair(dated(changes), anew.rows(flow.changes))
    pairs["unapplied"] = _pair(reading.unapplied(judged, frame.columns), anew.rows(flow.unapplied))
    proof = _compared(flow, pairs)
    if proof.verdict != "off" or anew.is_changed or flow.fold:
        return judged_by(anew, proof)
    if not anew.gone and not anew.is_compacted():
        return proof
    log = reduce(lambda one, two: one.unionAll(two), (anew.records(name).select(*PLACE) for name in anew.stretches))
    log = log.distinct()
    # With nothing behind the flow, the last record of every key is in a compacted log, and no row may be of another.
    whole = () if anew.gone or not _is_at_the_end(anew) else (ROWS,)
    left = {
        name: (expected, found if name in whole else found.join(log, list(PLACE), "left_semi"))
        for name, (expected, found) in pairs.items()
    }
    remark = "rows of records that the log does not have any more are not judged"
    for _ in range(LOOKS):
        # Both sides read the log, one after the other, and the cleaner may come in between.
        proof = _compared(flow, left, (remark,))
        if proof.verdict != "off":
            break
    return proof


def _pair(expected: DataFrame, found: DataFrame | None) -> tuple[DataFrame, DataFrame]:
    return expected, expected.limit(0) if found is None else found


def _is_at_the_end(anew: Recomputed) -> bool:
    from tidelog.spark.link import Link

    for one in anew.stretches.values():
        with Link({**one.ingest.kafka, "bootstrap.servers": anew.pipeline.bootstrap_servers}) as link:
            latest = link.latest(one.ends, one.ingest.isolation)
        if any(latest[at] > end for at, end in one.ends.items()):
            return False
    return True


def _compared(flow: View, pairs: dict[str, tuple[DataFrame, DataFrame]], remarks: tuple[str, ...] = ()) -> Proof:
    counts: dict[str, int] = {}
    faults: list[str] = []
    examples: list[str] = []
    for name, (expected, found) in pairs.items():
        near = _near_columns(flow, expected) if name == ROWS else []
        difference = compare_rows(expected.drop(*near), found.drop(*near))
        wrong = _count_wrong(flow, expected, found, near) if near and difference.is_none else 0
        before = "" if name == ROWS else f"{name} "
        counts |= _counts(name, before, difference)
        if near:
            counts["wrong"] = wrong
            faults.append("wrong")
        faults += [f"{before}missing", f"{before}surplus"]
        examples += [f"{before}{text}" for text in difference.examples]
    return Proof(counts=counts, faults=tuple(faults), examples=tuple(examples), remarks=remarks)


def _counts(name: str, before: str, difference: Difference) -> dict[str, int]:
    counts = {"expected": difference.expected} if name == ROWS else {}
    return {
        **counts,
        name: difference.found,
        f"{before}missing": difference.missing,
        f"{before}surplus": difference.surplus,
    }


def _near_columns(flow: View, expected: DataFrame) -> list[str]:
    from pyspark.sql.types import DoubleType, FloatType

    return [
        measure.name
        for measure in flow.fold
        if measure.function == "approx_count_distinct"
        or isinstance(expected.schema[measure.name].dataType, DoubleType | FloatType)
    ]


def _count_wrong(flow: View, expected: DataFrame, found: DataFrame, near: list[str]) -> int:
    """Rows that are there, with a measure that is too far off. A row is told by its last event."""
    from pyspark.sql import functions as F

    sketched = {measure.name for measure in flow.fold if measure.function == "approx_count_distinct"}
    ours = expected.select(*PLACE, *(F.col(f"`{name}`").alias(f"_ours_{name}") for name in near))
    theirs = found.select(*PLACE, *(F.col(f"`{name}`").alias(f"_theirs_{name}") for name in near))

    def is_near(name: str) -> Column:
        one, two = F.col(f"`_ours_{name}`"), F.col(f"`_theirs_{name}`")
        share = SKETCHED if name in sketched else RELATIVE
        close = F.abs(one - two) <= F.greatest(F.abs(one), F.abs(two)) * share + ABSOLUTE
        return one.eqNullSafe(two) | F.coalesce(close, F.lit(False))

    return int(ours.join(theirs, list(PLACE)).where(~reduce(and_, (is_near(name) for name in near))).count())
