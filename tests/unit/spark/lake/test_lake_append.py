"""What every format owes to one stream: rows once, in the order of batches, readable by the format's own readers."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from tests.unit.spark.lake import rig
from tidelog.spark.lake import DamagedError, Description, LakeError, SchemaError, open_table

each_format = pytest.mark.parametrize("format", rig.FORMATS)


@each_format
def test_rows_come_back_by_our_reader_and_by_the_formats_own(tmp_path: Path, format: str) -> None:
    table = rig.table_in(tmp_path, format)
    assert not table.exists()
    assert (table.count(), list(table.rows()), table.files()) == (0, [], [])
    rows = rig.records(0, 40)
    done = rig.append(table, rows)
    assert (done.rows, done.skipped) == (40, False)
    assert done.files == len(table.files()) == 6, "two tasks, each with two days and one null"
    assert table.exists()
    assert table.count() == 40
    assert rig.read_elsewhere(table) == rig.in_order(rows)
    assert rig.coordinates(table) == rig.coordinates_of(rows)
    assert next(table.rows()).schema.names == ["topic", "partition", "offset", "timestamp"]


@each_format
def test_a_file_that_is_gone_or_damaged_is_named(tmp_path: Path, format: str) -> None:
    table = rig.table_in(tmp_path, format)
    rig.append(table, rig.records(0, 40))
    file = Path(table.files()[0])
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(DamagedError, match=rf"{file.name}, a file of the table in .* cannot be read: .*rows are lost"):
        list(table.rows())
    file.unlink()
    with pytest.raises(DamagedError, match=rf"{file.name}, a file of the table in .* is gone; its rows are lost"):
        list(table.rows())
    file.write_bytes(content)
    assert rig.coordinates(table) == rig.coordinates_of(rig.records(0, 40))


@each_format
def test_a_batch_that_comes_again_is_skipped_whatever_its_splits(tmp_path: Path, format: str) -> None:
    table = rig.table_in(tmp_path, format)
    rows = rig.records(0, 30)
    rig.append(table, rows[:10], batch=0)
    rig.append(table, rows[10:], batch=1)
    files = rig.data_files(table)
    for again in (rig.table_in(tmp_path, format), table):
        for batch in (0, 1):
            done = rig.append(again, rows[:10], batch=batch, tasks=5)
            assert (done.rows, done.files, done.skipped) == (0, 0, True)
    assert rig.data_files(table) == files, "a batch that is skipped writes nothing"
    assert rig.read_elsewhere(table) == rig.in_order(rows)


@each_format
def test_two_queries_have_ids_of_their_own_and_without_the_id_rows_are_doubled(tmp_path: Path, format: str) -> None:
    table = rig.table_in(tmp_path, format)
    rows = rig.records(0, 6)
    rig.append(table, rows, query="one", batch=3)
    done = rig.append(table, rows, query="two", batch=0)
    assert not done.skipped
    assert rig.read_elsewhere(table) == rig.in_order(rows + rows)
    assert table.describe().batches == {"one": 3, "two": 0}


@each_format
def test_an_empty_batch_leaves_nothing(tmp_path: Path, format: str) -> None:
    table = rig.table_in(tmp_path, format)
    done = rig.append(table, [], batch=0)
    assert (done.rows, done.files, done.skipped) == (0, 0, False)
    assert rig.data_files(table) == set()
    rig.append(table, rig.records(0, 3), batch=1)
    assert rig.append(table, [], batch=2).files == 0
    assert table.count() == 3


@each_format
def test_describe(tmp_path: Path, format: str) -> None:
    table = rig.table_in(tmp_path, format)
    nothing = table.describe()
    assert nothing == Description(
        uri=str(tmp_path / "lake" / "orders"), format=format, exists=False, files=0, bytes=0, rows=0, batches={}
    )
    for batch in range(12):
        rig.append(table, rig.records(batch * 5, 5), batch=batch)
    told = table.describe()
    assert (told.exists, told.rows, told.batches) == (True, 60, {"q": 11})
    assert told.files == len(table.files())
    assert told.bytes == sum(Path(path).stat().st_size for path in table.files())


@each_format
def test_new_columns_are_taken_and_missing_ones_are_null(tmp_path: Path, format: str) -> None:
    table = rig.table_in(tmp_path, format)
    old = rig.records(0, 6)
    rig.append(table, old, batch=0)
    amount = T.StructField("amount", T.DoubleType(), nullable=False)
    wide = T.StructType([amount, *rig.SOURCE.fields])
    new = [{"amount": row["offset"] / 2, **row} for row in rig.records(6, 6)]
    rig.append(table, new, batch=1, schema=wide)
    narrow = T.StructType([field for field in rig.SOURCE.fields if field.name != "headers"])
    late = [{name: value for name, value in row.items() if name != "headers"} for row in rig.records(12, 6)]
    rig.append(table, late, batch=2, schema=narrow)
    expected = [{"amount": None, "headers": None, **row} for row in old + new + late]
    assert rig.read_elsewhere(table) == rig.in_order(expected)
    assert table.merge_small_files().after >= 1
    assert rig.read_elsewhere(table) == rig.in_order(expected)


def _struct(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


def _payloads(kind: Any, first: int, values: list[dict[str, Any] | None]) -> tuple[list[dict[str, Any]], Any]:
    field = T.StructField("payload", kind)
    rows = [{**rig.record(first + n), "payload": value} for n, value in enumerate(values)]
    return rows, T.StructType([*rig.SOURCE.fields, field])


@each_format
def test_structs_grow_and_what_a_frame_lacks_in_them_is_null(tmp_path: Path, format: str) -> None:
    """As payloads do when a registry has a newer schema: at the top, in a struct of a struct, and in a list's."""
    table = rig.table_in(tmp_path, format)
    text, number, whole = T.StringType(), T.LongType(), T.IntegerType()
    first = _struct(id=number, inner=_struct(a=text))
    second = _struct(id=whole, country=text, inner=_struct(b=number, a=text), lines=T.ArrayType(_struct(sku=text)))
    third = _struct(country=text, lines=T.ArrayType(_struct(sku=text, n=whole)))
    parts: list[tuple[T.StructType, list[dict[str, Any] | None]]] = [
        (first, [{"id": 0, "inner": {"a": "x"}}, None]),
        (second, [{"id": 1, "country": "de", "inner": {"a": "y", "b": 2}, "lines": [{"sku": "s"}]}]),
        (third, [{"country": "at", "lines": [{"sku": "t", "n": 3}]}]),
    ]
    for batch, (kind, values) in enumerate(parts):
        rows, wanted = _payloads(kind, batch * 10, values)
        rig.append(table, rows, batch=batch, schema=wanted, tasks=1)
    expected = [
        {"id": 0, "inner": {"a": "x", "b": None}, "country": None, "lines": None},
        None,
        {"id": 1, "inner": {"a": "y", "b": 2}, "country": "de", "lines": [{"sku": "s", "n": None}]},
        {"id": None, "inner": None, "country": "at", "lines": [{"sku": "t", "n": 3}]},
    ]
    for _ in range(2):
        if format == "parquet":
            # A reader by glob unites the files' structs itself; here the table's own list, each file by its schema.
            found = [row for file in table.files() for row in pq.ParquetFile(file).read().to_pylist()]
            read = [row["payload"] for row in sorted(found, key=lambda row: row["offset"])]
            read = [value and {**dict.fromkeys(expected[0] or ()), **value} for value in read]
        else:
            read = [row["payload"] for row in sorted(rig.read_elsewhere(table), key=lambda row: row["offset"])]
        assert [_without_nulls(value) for value in read] == [_without_nulls(value) for value in expected]
        table.merge_small_files()
    kept = [row["payload"] for file in table.files() for row in pq.ParquetFile(file).read().to_pylist()]
    assert sorted(kept, key=repr) == sorted(expected, key=repr), "merged files have all fields"


def _without_nulls(value: Any) -> Any:
    """Fields that are null and those that a file does not have are the same."""
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one}
    return value


BAD_FRAMES: dict[str, tuple[dict[str, T.DataType | None], str]] = {
    "changed type": ({"value": T.StringType()}, "column 'value' is binary in the table and string in the frame"),
    "narrowed type": ({"partition": T.LongType()}, "column 'partition' is int32 in the table and int64 in the frame"),
    "nested field": (
        {"headers": T.ArrayType(T.StructType([T.StructField("key", T.LongType())]))},
        "column 'headers[].key' is string in the table and int64 in the frame",
    ),
    "other case": ({"Value": T.BinaryType()}, "have the same name"),
    "other case alone": ({"value": None, "Value": T.BinaryType()}, "column 'Value' is called 'value' in the table"),
    "no such type": ({"wait": T.DayTimeIntervalType()}, "column 'wait' is interval day to second"),
    "bad name": ({"a b": T.StringType()}, "column 'a b'"),
    "no partition column": ({"event_date": None}, "partition column 'event_date' is not in the frame"),
    "partition type": ({"event_date": T.DoubleType()}, "partition column 'event_date' is double; allowed are date"),
}


@each_format
@pytest.mark.parametrize("case", BAD_FRAMES)
def test_a_frame_that_does_not_fit_is_refused_before_a_file_is_written(tmp_path: Path, format: str, case: str) -> None:
    table = rig.table_in(tmp_path, format)
    rows = rig.records(0, 6)
    rig.append(table, rows, batch=0)
    files = rig.data_files(table)
    changes, message = BAD_FRAMES[case]
    fields: dict[str, T.DataType | None] = {field.name: field.dataType for field in rig.SOURCE.fields}
    fields.update(changes)
    schema = T.StructType([T.StructField(name, kind) for name, kind in fields.items() if kind is not None])
    with pytest.raises(SchemaError, match=re.escape(message)):
        rig.append(table, [], batch=1, schema=schema)
    assert rig.data_files(table) == files
    assert rig.read_elsewhere(table) == rig.in_order(rows)


@each_format
def test_another_partitioning_than_the_tables_is_refused(tmp_path: Path, format: str) -> None:
    rig.append(rig.table_in(tmp_path, format), rig.records(0, 3))
    with pytest.raises(SchemaError, match=r"is partitioned by \(event_date\), not by \(topic\)"):
        rig.append(rig.table_in(tmp_path, format, partition_by=("topic",)), rig.records(0, 3), batch=1)


@each_format
def test_special_characters_in_paths_and_partition_values(tmp_path: Path, format: str) -> None:
    odd = tmp_path / ("a b%2xü?'#é=1" if format == "delta" else "a b%20ü?'#é=1")
    odd.mkdir()
    table = open_table(str(odd / "or ders"), format, partition_by=("region", "partition"))
    schema = T.StructType([*rig.SOURCE.fields, T.StructField("region", T.StringType())])
    regions = ["é/ü", "50%", "a b", "../up", "x=y", None, "plain"]
    rows = [rig.record(offset, region=regions[offset % 7]) for offset in range(28)]
    rig.append(table, rows, schema=schema)
    told = [row for batch in table.rows() for row in batch.to_pylist()]
    assert sorted(row["offset"] for row in told) == list(range(28))
    assert {row["partition"] for row in told} == {0, 1}
    assert table.merge_small_files().before
    assert table.remove_orphans(older_than_s=0)
    assert all(Path(path).is_relative_to(table.uri) for path in rig.data_files(table))
    assert not (odd / "up").exists()
    if format == "parquet":
        import pyarrow.dataset as ds

        keys = pa.schema([("region", pa.string()), ("partition", pa.int32())])
        found = ds.dataset(table.uri, format="parquet", partitioning=ds.partitioning(keys, flavor="hive")).to_table()
        back: list[dict[str, Any]] = rig.in_order(found.to_pylist())
    else:
        back = rig.read_elsewhere(table)
    assert back == rig.in_order(rows)


@each_format
def test_a_table_without_partitions_and_without_coordinates(tmp_path: Path, format: str) -> None:
    """What an aggregate writes."""
    table = rig.table_in(tmp_path, format, partition_by=())
    schema = T.StructType([T.StructField("shop", T.StringType()), T.StructField("orders", T.LongType())])
    for batch in range(3):
        rig.append(table, [{"shop": "a", "orders": batch}, {"shop": None, "orders": None}], batch=batch, schema=schema)
    assert rig.append(table, [{"shop": "a", "orders": 2}], batch=2, schema=schema).skipped
    assert (table.count(), table.describe().batches) == (6, {"q": 2})
    with pytest.raises(SchemaError, match="has no topic, partition, offset, timestamp"):
        list(table.rows())
    assert table.merge_small_files().after == 1
    [file] = table.files()
    counts = pq.ParquetFile(file).read().column("orders").to_pylist()
    assert sorted(counts, key=str) == [0, 1, 2, None, None, None]


def test_a_partition_column_may_not_be_an_empty_text(tmp_path: Path) -> None:
    table = rig.table_in(tmp_path, "delta", partition_by=("topic",))
    with pytest.raises(LakeError, match="'topic' has an empty text"):
        rig.append(table, [rig.record(0, topic="")])
    assert rig.data_files(table) == set()


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="format is 'csv'; allowed are delta, parquet, iceberg"):
        open_table(str(tmp_path), "csv")
    with pytest.raises(LakeError, match="s3 is not supported"):
        open_table("s3://bucket/table", "delta")
    with pytest.raises(LakeError, match="partition_by is a list"):
        open_table(str(tmp_path), "delta", partition_by="event_date")
    with pytest.raises(LakeError, match="for iceberg, not for delta"):
        open_table(str(tmp_path), "delta", identifier="a.b")
    with pytest.raises(LakeError, match="deltalake takes %20"):
        open_table(str(tmp_path / "a%20b"), "delta")
    table = open_table(f"file://{tmp_path}/t", "parquet")
    assert table.uri == f"{tmp_path}/t"
    with pytest.raises(LakeError, match="query is ''"):
        rig.append(table, [], query="")
    with pytest.raises(LakeError, match="batch -1"):
        rig.append(table, [], batch=-1)
    with pytest.raises(LakeError, match="target_bytes is 0"):
        table.merge_small_files(target_bytes=0)
    with pytest.raises(LakeError, match="older_than_s is -1"):
        table.remove_orphans(older_than_s=-1)


def test_iceberg_in_a_catalog_of_the_users(tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    options = {"name": "mine", "type": "sql", "uri": f"sqlite:///{tmp_path}/my.db", "warehouse": f"file://{tmp_path}"}
    table = open_table(str(tmp_path / "orders"), "iceberg", catalog=options, identifier="shop.orders")
    rows = [row | {"headers": [{"key": "k", "value": None}]} for row in rig.records(0, 10)]
    rig.append(table, rows)
    assert rig.append(table, rows).skipped
    found = load_catalog(**options).load_table("shop.orders")
    assert rig.in_order(found.scan().to_arrow().to_pylist()) == rig.in_order(rows)
    assert not (tmp_path / "catalog.db").exists()
    with pytest.raises(LakeError, match="needs a namespace"):
        open_table(str(tmp_path / "orders"), "iceberg", catalog=options, identifier="orders")


def test_delta_skips_files_by_the_bounds_we_write(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    table = rig.table_in(tmp_path, "delta")
    rows = rig.records(0, 40, days=1)
    for batch in range(4):
        rig.append(table, rows[batch * 10 : batch * 10 + 10], batch=batch, tasks=1)
    delta = DeltaTable(table.uri)
    since = rig.NOON + dt.timedelta(seconds=35)
    found = delta.to_pyarrow_table(filters=[("timestamp", ">=", since)])
    assert rig.in_order(found.to_pylist()) == rig.in_order([row for row in rows if row["timestamp"] >= since])
    actions = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    assert sorted((action["min.offset"], action["max.offset"]) for action in actions) == [
        (0, 8), (4, 9), (10, 18), (14, 19), (20, 28), (24, 29), (30, 38), (34, 39)
    ]  # fmt: skip
