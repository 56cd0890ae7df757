"""One state of a table as a Spark frame: its committed files, read by executors, whatever the format.

Spark itself has no reader for Delta or Iceberg here, and the values of partition columns lie in the commits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from tidelog.spark.lake.errors import DamagedError
from tidelog.spark.lake.store import Store
from tidelog.spark.lake.tasks import map_in_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_TASKS_MAX: Final = 200
_BATCH_ROWS: Final = 16_384


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What was committed at one moment."""

    root: str
    schema: pa.Schema | None
    """None: there was no table."""
    files: list[tuple[str, dict[str, str | None]]]
    """Where each lies, and the values of its partition columns."""
    batches: dict[str, int]
    """The last batch of each query."""


def snapshot(store: Store) -> Snapshot:
    """Files and batches of the same commit: asked for again when one came between."""
    while True:
        before = store.batches()
        schema, files = store.schema(), store.files()
        if store.batches() == before:
            found = [(store.open_path(file.path), file.partition) for file in files]
            return Snapshot(root=store.root, schema=schema, files=found, batches=before)


def frame_of(spark: SparkSession, taken: Snapshot) -> DataFrame | None:
    """All columns of all rows; None when there is no table. DamagedError when a file is gone."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if taken.schema is None:
        return None
    for path, _ in taken.files:
        if not os.path.exists(path):
            raise DamagedError(f"{path}, a file of the table in {taken.root}, is gone; its rows are lost")
    kinds = from_arrow_schema(taken.schema, prefer_timestamp_ntz=False)
    if not taken.files:
        return spark.createDataFrame([], kinds)
    listed = [(path, msgspec.json.encode(partition).decode()) for path, partition in taken.files]
    files = spark.createDataFrame(listed, "path string, partition string")
    files = files.repartition(min(len(listed), _TASKS_MAX), "path")
    made: DataFrame = map_in_arrow(files, _Reader(taken.schema.serialize().to_pybytes()), kinds)
    return made


class _Reader:
    """What a task does; pickled."""

    def __init__(self, schema: bytes) -> None:
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from tidelog.spark.lake.merging import with_partition
        from tidelog.spark.lake.schema import conform

        schema = pa.ipc.read_schema(pa.py_buffer(self._schema))
        for batch in batches:
            for row in batch.to_pylist():
                partition = msgspec.json.decode(row["partition"], type=dict[str, str | None])
                source = pq.ParquetFile(row["path"])
                try:
                    for part in source.iter_batches(batch_size=_BATCH_ROWS):
                        yield conform(with_partition(part, partition, schema), schema)
                finally:
                    source.close()
