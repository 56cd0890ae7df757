"""Two frames as multisets of rows, in Spark: how many rows one has and the other has not, and a few of them.

A row is told by two hashes of all its columns, 96 bits together. Spark's hashes pass over nulls, so that (null, 1) and
(1, null) would be one: which columns are null is hashed as well, and what has columns inside is hashed as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.proof import UnprovableError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

EXAMPLES: Final = 5
ID: Final = "_row_id"
_SIDE: Final = "_side"
_JSON: Final = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    expected: int
    found: int
    missing: int
    """Rows that are expected and not found."""
    surplus: int
    examples: tuple[str, ...] = ()

    @property
    def is_none(self) -> bool:
        return not (self.missing or self.surplus)


def compare_rows(expected: DataFrame, found: DataFrame, *, examples: int = EXAMPLES) -> Difference:
    """Both are read once, and once more for the examples when they differ. The order of rows and columns is nothing;
    columns are compared as the types of `found`, and a column that one side lacks is null there."""
    from pyspark.sql import functions as F

    ours, theirs = alike(expected, found)
    tagged = with_id(ours).select(ID, F.lit(1).alias(_SIDE))
    tagged = tagged.unionAll(with_id(theirs).select(ID, F.lit(-1).alias(_SIDE)))
    by_row = tagged.groupBy(ID).agg(
        F.count_if(F.col(_SIDE) > 0).alias("expected"), F.count_if(F.col(_SIDE) < 0).alias("found")
    )
    more, less = F.col("expected") - F.col("found"), F.col("found") - F.col("expected")
    sums = by_row.agg(
        F.coalesce(F.sum("expected"), F.lit(0)),
        F.coalesce(F.sum("found"), F.lit(0)),
        F.coalesce(F.sum(F.greatest(more, F.lit(0))), F.lit(0)),
        F.coalesce(F.sum(F.greatest(less, F.lit(0))), F.lit(0)),
    ).first()
    assert sums is not None
    difference = Difference(expected=sums[0], found=sums[1], missing=sums[2], surplus=sums[3])
    if difference.is_none:
        return difference
    named = [
        *named_rows("missing", ours, by_row.where(more > 0), examples if difference.missing else 0),
        *named_rows("surplus", theirs, by_row.where(less > 0), examples if difference.surplus else 0),
    ]
    return Difference(expected=sums[0], found=sums[1], missing=sums[2], surplus=sums[3], examples=tuple(named))


def without(rows: DataFrame, taken: DataFrame, names: Sequence[str]) -> tuple[DataFrame, int, int]:
    """(the rows less those that `taken` has, as often as it has them; how many it has; how many of these the rows have
    not, or not so often). Rows are told by the columns that are named, which both have: of several equal ones any is as
    good as another."""
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as F

    counts = with_id(taken, names).groupBy(ID).agg(F.count("*").alias("_taken"))
    keyed = with_id(rows, names)
    there = keyed.groupBy(ID).agg(F.count("*").alias("_rows"))
    surplus = F.greatest(F.col("_taken") - F.coalesce("_rows", F.lit(0)), F.lit(0))
    sums = counts.join(there, ID, "left").agg(F.sum("_taken"), F.sum(surplus)).first()
    if sums is None or not sums[0]:
        return rows, 0, 0
    matched = keyed.join(counts, ID, "left")
    twins = matched.where(F.col("_taken").isNotNull())
    numbered = twins.withColumn("_number", F.row_number().over(Over.partitionBy(ID).orderBy(ID)))
    kept = matched.where(F.col("_taken").isNull()).select(*rows.columns)
    return kept.unionAll(numbered.where(F.col("_number") > F.col("_taken")).select(*rows.columns)), sums[0], sums[1]


def alike(expected: DataFrame, found: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The same columns in the same order and of the same types on both sides."""
    from pyspark.sql import functions as F

    kinds = {field.name: field.dataType for field in expected.schema.fields}
    kinds |= {field.name: field.dataType for field in found.schema.fields}
    names = sorted(kinds)

    def side(frame: DataFrame) -> DataFrame:
        present = {field.name: field.dataType for field in frame.schema.fields}
        columns = []
        for name in names:
            column = F.col(f"`{name}`") if name in present else F.lit(None)
            same = name in present and _plain(present[name]) == _plain(kinds[name])
            columns.append((column if same else column.cast(kinds[name])).alias(name))
        try:
            return frame.select(*columns)
        except Exception as error:
            from pyspark.errors import PySparkException

            if not isinstance(error, PySparkException):
                raise
            raise UnprovableError(
                f"the table's columns are not those of the flow: {str(error).splitlines()[0]}"
            ) from None

    return side(expected), side(found)


def with_id(frame: DataFrame, columns: Sequence[str] | None = None) -> DataFrame:
    """With a column ID that is the same for equal rows, of these columns or all."""
    from pyspark.sql import functions as F

    names = list(columns if columns is not None else frame.columns)
    parts: list[Column] = [_hashable(name, frame.schema[name].dataType) for name in names]
    parts += [F.col(f"`{name}`").isNull() for name in names]
    return frame.withColumn(ID, F.struct(F.xxhash64(*parts), F.hash(*parts)))


def _hashable(name: str, kind: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    column = F.col(f"`{name}`")
    if isinstance(kind, ArrayType | MapType | StructType):
        return F.to_json(F.struct(column.alias("v")), _JSON)
    return column


def _plain(kind: DataType) -> str:
    """Without nullability: a table's columns may all be null."""
    return str(kind.simpleString())


def named_rows(fault: str, frame: DataFrame, ids: DataFrame, count: int) -> list[str]:
    """Some of the rows, each once, as JSON."""
    from pyspark.sql import functions as F

    if not count:
        return []
    rows = with_id(frame).join(F.broadcast(ids.select(ID).limit(count)), ID).dropDuplicates([ID]).drop(ID)
    found = rows.select(F.to_json(F.struct("*"), _JSON).alias("row")).collect()
    return [f"{fault}: {row['row']}" for row in sorted(found)]
