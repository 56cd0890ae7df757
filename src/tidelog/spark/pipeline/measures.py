"""Measures that can be kept as parts: what a batch adds, how parts become one, and what is shown at the end.

Expressions are Spark SQL's. The event time of a row is `TIME`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelog.spark.pipeline.kinds.aggregate import Measure

TIME: Final = "_time"


@dataclass(frozen=True, slots=True)
class Part:
    column: str
    partial: str  # over rows
    merge: str  # over parts


@dataclass(frozen=True, slots=True)
class Kept:
    parts: tuple[Part, ...]
    final: str


def kept(measure: Measure) -> Kept:
    return _KINDS[measure.function](f"_{measure.name}", measure.argument)


def _one(partial: str, merge: str, final: str = "{}") -> Callable[[str, str], Kept]:
    def make(column: str, argument: str) -> Kept:
        name = f"`{column}`"
        return Kept((Part(column, partial.format(argument), merge.format(name)),), final.format(name))

    return make


def _avg(column: str, argument: str) -> Kept:
    total, number = f"{column}_sum", f"{column}_count"
    return Kept(
        (
            Part(total, f"sum(CAST({argument} AS DOUBLE))", f"sum(`{total}`)"),
            Part(number, f"count({argument})", f"sum(`{number}`)"),
        ),
        f"try_divide(`{total}`, `{number}`)",
    )


# Rows without a value are no first or last ones.
_TIMED: Final = f"CASE WHEN ({{0}}) IS NOT NULL THEN struct({TIME} AS t, {{0}} AS v) END"

_KINDS: Final[dict[str, Callable[[str, str], Kept]]] = {
    "count": _one("count({})", "sum({})"),
    "sum": _one("sum({})", "sum({})"),
    "min": _one("min({})", "min({})"),
    "max": _one("max({})", "max({})"),
    "avg": _avg,
    "first": _one(f"min({_TIMED})", "min({})", "{}.v"),
    "last": _one(f"max({_TIMED})", "max({})", "{}.v"),
    "count_distinct": _one("collect_set({})", "array_distinct(flatten(collect_list({})))", "size({})"),
    "approx_count_distinct": _one("hll_sketch_agg({})", "hll_union_agg({})", "hll_sketch_estimate({})"),
}
