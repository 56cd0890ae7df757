"""Executors write, the driver commits: frames of real Spark into every format, and back."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.spark.lake import rig
from tidelog.spark.lake import LakeError, SchemaError, open_table, query_id
from tidelog.spark.lake.tasks import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The first of them waits for the session and for the first workers.
pytestmark = pytest.mark.timeout(300)
each_format = pytest.mark.parametrize("format", rig.FORMATS)


def _plain(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows as the other readers give them."""
    return [
        {
            name: value.replace(tzinfo=dt.UTC)
            if isinstance(value, dt.datetime)
            else bytes(value)
            if isinstance(value, bytearray)
            else [{"key": pair.key, "value": bytes(pair.value)} for pair in value]
            if isinstance(value, list)
            else value
            for name, value in row.asDict().items()
        }
        for row in frame.collect()
    ]


@each_format
def test_frames_of_spark_come_back_whole(spark: SparkSession, tmp_path: Path, format: str) -> None:
    table = rig.table_in(tmp_path, format)
    rows = rig.records(0, 50)
    frame = spark.createDataFrame(rows[:30], rig.SOURCE)
    done = table.append(frame.repartition(3), query="q", batch=0)
    assert (done.rows, done.skipped) == (30, False)
    assert done.files == len(table.files())
    assert table.append(frame.coalesce(1), query="q", batch=0).skipped
    table.append(spark.createDataFrame(rows[30:], rig.SOURCE).coalesce(1), query="q", batch=1)
    assert rig.read_elsewhere(table) == rig.in_order(rows)
    assert rig.coordinates(table) == rig.coordinates_of(rows)
    table.merge_small_files()
    assert rig.read_elsewhere(table) == rig.in_order(rows)
    with pytest.raises(SchemaError, match="column 'offset' is int64 in the table and string in the frame"):
        table.append(frame.withColumn("offset", frame["offset"].cast("string")), query="q", batch=2)
    with pytest.raises(LakeError, match="not a batch of a streaming query"):
        query_id(frame)


def test_spark_reads_a_parquet_table_by_its_directory(spark: SparkSession, tmp_path: Path) -> None:
    table = rig.table_in(tmp_path, "parquet")
    rows = rig.records(0, 50)
    table.append(spark.createDataFrame(rows, rig.SOURCE), query="q", batch=0)
    read = spark.read.parquet(table.uri)
    assert dict(read.dtypes)["event_date"] == "date"
    assert rig.in_order(_plain(read)) == rig.in_order(rows)
    assert rig.in_order(_plain(spark.read.option("basePath", table.uri).parquet(*table.files()))) == rig.in_order(rows)


TYPES = """
    topic string, partition int, offset bigint, timestamp timestamp, event_date date, yes boolean, small float,
    large double, price decimal(12,3), tags array<string>, counts map<string,bigint>,
    nested struct<a: int, b: array<struct<c: string>>>
"""


@each_format
def test_every_type_that_a_table_takes(spark: SparkSession, tmp_path: Path, format: str) -> None:
    row = {
        "topic": "t",
        "partition": 0,
        "offset": 1,
        "timestamp": dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
        "event_date": dt.date(1969, 12, 31),
        "yes": True,
        "small": 0.5,
        "large": -1e300,
        "price": decimal.Decimal("123456789.125"),
        "tags": ["a", None],
        "counts": {"x": 1},
        "nested": {"a": None, "b": [{"c": "d"}]},
    }
    empty = dict.fromkeys(row) | {"topic": "t", "partition": 0, "offset": 2}
    table = open_table(str(tmp_path / "types"), format)
    table.append(spark.createDataFrame([row, empty], TYPES), query="q", batch=0)
    told = rig.read_elsewhere(table)
    told[0]["counts"] = dict(told[0]["counts"])
    assert told == [row, empty]


def test_a_lost_task_leaves_an_orphan_and_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = rig.table_in(tmp_path, "delta")
    table.append(spark.createDataFrame(rig.records(0, 5), rig.SOURCE), query="q", batch=0)
    frame = spark.createDataFrame(rig.records(5, 20), rig.SOURCE).repartition(2)

    def explode(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1:
            raise RuntimeError("the executor is gone")
        yield from batches

    with pytest.raises(Exception, match="the executor is gone"):
        table.append(map_in_arrow(frame, explode, frame.schema), query="q", batch=1)
    assert rig.read_elsewhere(table) == rig.in_order(rig.records(0, 5))
    table.append(frame, query="q", batch=1)
    assert rig.read_elsewhere(table) == rig.in_order(rig.records(0, 25))
    table.remove_orphans(older_than_s=0)
    assert rig.data_files(table) == set(table.files())
