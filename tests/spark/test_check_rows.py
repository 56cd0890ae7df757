"""Rows as multisets: nulls, what has columns inside, how often a row is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from tidelog.spark.pipeline.comparing import Difference, compare_rows
from tidelog.spark.pipeline.proof import UnprovableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "a INT, b INT, c STRUCT<x: INT, y: INT>, d ARRAY<INT>, e MAP<STRING, TIMESTAMP>"
Row = tuple[Any, ...]


def frame(spark: SparkSession, *rows: Row, schema: str = SCHEMA) -> DataFrame:
    return spark.createDataFrame(list(rows), schema)


def counts(difference: Difference) -> tuple[int, int, int, int]:
    return difference.expected, difference.found, difference.missing, difference.surplus


def test_rows_are_told_apart_by_every_column_and_counted(spark: SparkSession) -> None:
    rows: list[Row] = [
        (1, None, None, None, None),
        (None, 1, None, None, None),
        (None, None, (1, None), None, None),
        (None, None, (None, 1), None, None),
        (None, None, None, [1, None], None),
        (None, None, None, [None, 1], None),
        (None, None, None, None, {"k": None}),
        (None, None, None, None, {}),
        (None, None, None, None, None),
        (None, None, None, None, None),
    ]
    whole = frame(spark, *rows)
    assert counts(compare_rows(whole, frame(spark, *reversed(rows)))) == (10, 10, 0, 0)
    others = frame(spark, *rows[:2], rows[3], rows[3], *rows[4:9])
    found = compare_rows(whole, others)
    assert counts(found) == (10, 9, 2, 1)
    assert [line.partition(": ")[0] for line in found.examples] == ["missing", "missing", "surplus"]
    assert '"c":{"x":null,"y":1}' in found.examples[-1]


def test_columns_are_compared_as_the_types_of_the_table(spark: SparkSession) -> None:
    expected = frame(spark, (1, 2), (3, None), schema="a INT, b INT")
    assert counts(compare_rows(expected, frame(spark, (2, 1), (None, 3), schema="b BIGINT, a BIGINT"))) == (2, 2, 0, 0)
    # A column that one side lacks is null there.
    assert counts(compare_rows(expected, frame(spark, (1,), (3,), schema="a INT"))) == (2, 2, 1, 1)
    with pytest.raises(UnprovableError, match="are not those of the flow"):
        compare_rows(expected, frame(spark, ([1],), schema="a ARRAY<INT>"))
