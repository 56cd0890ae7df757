"""Proof of a flow by recomputing it: which flows that is possible for, and what their rows must be.

`prove_rows` is for flows that append what their query gives (sql). Other kinds make their own proof with `Recomputed`
and `compare_rows`, and give it as the `proof` of their Kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from tidelog.spark.pipeline.comparing import Difference, compare_rows
from tidelog.spark.pipeline.kinds import kind_of
from tidelog.spark.pipeline.model import Flow, Pipeline, Table
from tidelog.spark.pipeline.plans import first_line
from tidelog.spark.pipeline.proof import Proof, UnprovableError
from tidelog.spark.pipeline.recomputing import Recomputed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COORDINATES: Final = ("topic", "partition", "offset")
FAULTS: Final = ("missing", "surplus")
_LIMITS: Final = ("GlobalLimit", "LocalLimit", "Offset", "Tail", "Sample")


def prove(session: Callable[[], SparkSession], pipeline: Pipeline, flow: Flow, tell: Callable[[str], None]) -> Proof:
    """Never an exception of Spark's or ours: what cannot be proved is unknown, with the reason."""
    from pyspark.errors import PySparkException

    proof = kind_of(flow).proof
    if proof is None:
        return Proof(unknown=f"there is no way to prove a flow of kind {kind_of(flow).name}")
    try:
        tell("to be computed anew from the log")
        found: Proof = proof(Recomputed(session, pipeline, flow, tell), flow)
        return found
    except UnprovableError as error:
        return Proof(unknown=str(error))
    except PySparkException as error:
        return Proof(unknown=f"it cannot be computed anew: {first_line(error)}")
    except Exception as error:
        if not type(error).__module__.startswith("py4j"):
            raise
        return Proof(unknown=f"it cannot be computed anew: {_cause(error)}")


def prove_rows(anew: Recomputed, expected: DataFrame, table: Table) -> Proof:
    """The table must hold these rows and no others."""
    return prove_frame(anew, expected, anew.rows(table))


def prove_frame(anew: Recomputed, expected: DataFrame, found: DataFrame | None) -> Proof:
    """These rows and no others must have been found."""
    require_repeatable(expected)
    if found is None:
        found = expected.limit(0)
    difference = compare_rows(expected, found)
    if difference.is_none:
        return _proof(difference)
    if anew.is_changed:
        return Proof(
            counts={"expected": difference.expected, "rows": difference.found},
            unknown="the flow, or one that it reads, was changed since its first batch: not all rows were made alike",
        )
    if not anew.gone and not anew.is_compacted():
        return _proof(difference)
    return _of_what_is_left(anew, expected, found, difference)


def _of_what_is_left(anew: Recomputed, expected: DataFrame, found: DataFrame, whole: Difference) -> Proof:
    """Of a log that has lost records since the flow read them. What is left of it must be in the table, whatever else
    is there; a row is surplus only if it can be told by coordinates that its record is still in the log."""
    reason = f"the log does not have all records any more ({'; '.join(anew.gone) or 'it was compacted'})"
    if not all(name in frame.columns for name in COORDINATES for frame in (expected, found)):
        counts = {"expected": whole.expected, "rows": whole.found, "missing": whole.missing}
        missing = tuple(text for text in whole.examples if text.startswith("missing"))
        return Proof(
            counts=counts, faults=("missing",), examples=missing, unknown=f"{reason}, and rows have no coordinates"
        )
    log = None
    for name in anew.stretches:
        part = anew.records(name).select(*COORDINATES)
        log = part if log is None else log.unionAll(part)
    assert log is not None
    judged = found.join(log.distinct(), list(COORDINATES), "left_semi")
    difference = compare_rows(expected, judged)
    unjudged = whole.found - difference.found
    return _proof(difference, (f"not judged: {unjudged} rows of records that the log does not have any more",))


def _proof(difference: Difference, remarks: tuple[str, ...] = ()) -> Proof:
    return Proof(
        counts={
            "expected": difference.expected,
            "rows": difference.found,
            "missing": difference.missing,
            "surplus": difference.surplus,
        },
        faults=FAULTS,
        examples=difference.examples,
        remarks=remarks,
    )


def judged_by(anew: Recomputed, proof: Proof) -> Proof:
    """Rows that are off prove nothing where they were made by another definition, or their records are gone."""
    if proof.verdict != "off":
        return proof
    if anew.is_changed:
        reason = "the flow, or one that it reads, was changed since its first batch"
    elif anew.gone or anew.is_compacted():
        reason = f"the log does not have all records any more ({'; '.join(anew.gone) or 'compacted'})"
    else:
        return proof
    return excused(proof, reason)


def excused(proof: Proof, reason: str) -> Proof:
    """Nothing of it is a fault, for this reason."""
    return Proof(counts=proof.counts, examples=proof.examples, unknown=reason)


def require_repeatable(frame: DataFrame) -> None:
    """UnprovableError for a plan that gives other rows each time it is computed."""
    jvm: Any = frame.sparkSession._jvm
    plan: Any = frame._jdf.queryExecution().analyzed()
    patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    if not plan.deterministic():
        raise UnprovableError("it has an expression such as rand() or uuid(), which is another one each time")
    if plan.containsPattern(patterns.CURRENT_LIKE()):
        raise UnprovableError("it has an expression such as current_timestamp(), which is another one each time")
    if limited := [name for name in _nodes(plan) if name in _LIMITS]:
        raise UnprovableError(f"it takes any of its rows ({limited[0]}), which may be others each time")


def _nodes(plan: Any) -> Iterator[str]:
    yield str(plan.nodeName())
    children = plan.children()
    for index in range(children.size()):
        yield from _nodes(children.apply(index))


def _cause(error: Exception) -> str:
    from tidelog.spark.pipeline.running import cause

    return cause(str(error))
