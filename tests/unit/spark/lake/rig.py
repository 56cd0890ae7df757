"""Tables without a Spark session: a frame whose tasks run here, and readers that know nothing of our code."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import types as T

from tidelog.spark.lake import FORMATS, LakeTable, open_table

FORMATS = FORMATS
DAY = dt.date(2026, 11, 16)
NOON = dt.datetime(2026, 11, 16, 12, 0, 0, 123456, tzinfo=dt.UTC)
HEADERS = T.ArrayType(T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())]))
SOURCE = T.StructType(
    [
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("topic", T.StringType(), nullable=False),
        T.StructField("partition", T.IntegerType(), nullable=False),
        T.StructField("offset", T.LongType(), nullable=False),
        T.StructField("timestamp", T.TimestampType()),
        T.StructField("timestampType", T.IntegerType()),
        T.StructField("headers", HEADERS),
        T.StructField("event_date", T.DateType()),
    ]
)


def record(offset: int, day: dt.date | None = DAY, **more: Any) -> dict[str, Any]:
    return {
        "key": None if offset % 3 == 0 else b"k%d" % offset,
        "value": b"\x00\xff%d" % offset,
        "topic": "orders",
        "partition": offset % 2,
        "offset": offset,
        "timestamp": NOON + dt.timedelta(seconds=offset),
        "timestampType": 0,
        "headers": None if offset % 2 else [{"key": "trace", "value": b"\x01"}],
        "event_date": day,
        **more,
    }


def records(first: int, count: int, days: int = 2) -> list[dict[str, Any]]:
    """Over some days, and every fifth without one."""
    return [
        record(offset, None if offset % 5 == 4 else DAY + dt.timedelta(days=offset % days))
        for offset in range(first, first + count)
    ]


class LocalFrame:
    """As much of a DataFrame as append asks for; each slice of the rows is a task."""

    def __init__(self, rows: Sequence[dict[str, Any]], schema: T.StructType = SOURCE, tasks: int = 2) -> None:
        self.schema = schema
        self._rows = rows
        self._tasks = tasks

    def mapInArrow(self, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str) -> Any:
        assert schema == "file string"
        share = -(-len(self._rows) // self._tasks)
        rows = [
            SimpleNamespace(file=text)
            for task in range(self._tasks)
            for batch in function(iter(self._batches(self._rows[task * share : (task + 1) * share])))
            for text in batch.column(0).to_pylist()
        ]
        return SimpleNamespace(collect=lambda: rows)

    def _batches(self, rows: Sequence[dict[str, Any]]) -> list[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self.schema, timezone="UTC")
        return [pa.RecordBatch.from_pylist(rows[start : start + 7], schema=schema) for start in range(0, len(rows), 7)]


def append(table: LakeTable, rows: Sequence[dict[str, Any]], query: str = "q", batch: int = 0, **frame: Any) -> Any:
    return table.append(LocalFrame(rows, **frame), query=query, batch=batch)  # type: ignore[arg-type]


def table_in(directory: Path, format: str, **options: Any) -> LakeTable:
    return open_table(str(directory / "lake" / "orders"), format, **options)


def read_elsewhere(table: LakeTable) -> list[dict[str, Any]]:
    """All rows by the format's own reader, sorted by where they come from."""
    rows: list[dict[str, Any]] = _READERS[table.format](table.uri).to_pylist()
    return in_order(rows)


def in_order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def _delta(root: str) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(Path(root).as_uri()).to_pyarrow_table()


def _iceberg(root: str) -> pa.Table:
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy import URL

    warehouse, name = os.path.split(root)
    url = URL.create("sqlite", database=f"{warehouse}/catalog.db").render_as_string()
    catalog = SqlCatalog("tidelog", uri=url)
    found = catalog.load_table(("lake", name)).scan().to_arrow()
    if "headers" in found.column_names:
        # pyiceberg 0.12 gives an empty list for a null one (the files have null); there are no empty ones here.
        lists = [value or None for value in found.column("headers").to_pylist()]
        place = found.column_names.index("headers")
        found = found.set_column(place, "headers", pa.array(lists, found.column(place).type))
    return found


def _parquet(root: str) -> pa.Table:
    """By glob: whatever lies there under a name that readers see. All files' columns, dates by their directory."""
    days = ds.partitioning(pa.schema([("event_date", pa.date32())]), flavor="hive")
    files = [str(path) for path in Path(root).rglob("*.parquet") if not path.name.startswith(("_", "."))]
    schema = pa.unify_schemas([ds.dataset(file, format="parquet").schema for file in files])
    schema = schema.append(pa.field("event_date", pa.date32()))
    return ds.dataset(root, format="parquet", partitioning=days, schema=schema).to_table()


_READERS: dict[str, Callable[[str], pa.Table]] = {"delta": _delta, "iceberg": _iceberg, "parquet": _parquet}


def coordinates(table: LakeTable) -> list[tuple[str, int, int, dt.datetime]]:
    return sorted(
        (row["topic"], row["partition"], row["offset"], row["timestamp"])
        for batch in table.rows()
        for row in batch.to_pylist()
    )


def coordinates_of(rows: Sequence[dict[str, Any]]) -> list[tuple[str, int, int, dt.datetime]]:
    return sorted((row["topic"], row["partition"], row["offset"], row["timestamp"]) for row in rows)


def data_files(table: LakeTable) -> set[str]:
    """All that lie there, under whatever name, but for the logs'."""
    return {
        str(path)
        for path in Path(table.uri).rglob("*.parquet")
        if not {"_delta_log", "metadata"} & set(path.relative_to(table.uri).parts)
    }


def replace(table: LakeTable, rows: Sequence[dict[str, Any]], query: str = "q", batch: int = 0, **more: Any) -> Any:
    where = more.pop("where", None)
    return table.replace(LocalFrame(rows, **more), query=query, batch=batch, where=where)  # type: ignore[arg-type]
