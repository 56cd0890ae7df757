"""A table's record coordinates, from its committed files and nothing else: what an audit counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.spark.lake.errors import DamagedError, SchemaError
from tidelog.spark.lake.merging import with_partition
from tidelog.spark.lake.schema import UTC_MICROS, conform
from tidelog.spark.lake.store import Store

COORDINATES: Final = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", UTC_MICROS)]
)
_BATCH_ROWS: Final = 65_536


def coordinates(store: Store, prefix: str = "", only: tuple[str, str] | None = None) -> Iterator[pa.RecordBatch]:
    """Only these columns are read, a file at a time and a batch of its rows at a time. `only`: rows with this text in
    this column."""
    schema = store.schema()
    if schema is None:
        return
    names = [prefix + name for name in COORDINATES.names]
    needed = [*names, only[0]] if only is not None else names
    if lacking := [name for name in needed if name not in schema.names]:
        raise SchemaError(f"the table in {store.root} has no {', '.join(lacking)}: its rows cannot be told apart")
    wanted = [name for name in needed if name not in store.partition_by()]
    for file in store.files():
        try:
            source = pq.ParquetFile(store.open_path(file.path))
        except (OSError, pa.ArrowInvalid) as error:
            reason = "is gone" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
            raise DamagedError(
                f"{file.path}, a file of the table in {store.root}, {reason}; its rows are lost"
            ) from None
        try:
            for batch in source.iter_batches(batch_size=_BATCH_ROWS, columns=wanted):
                whole = with_partition(batch, file.partition, schema)
                if only is not None:
                    whole = whole.filter(pc.equal(whole.column(only[0]), only[1]))
                yield conform(whole.select(names).rename_columns(COORDINATES.names), COORDINATES)
        finally:
            source.close()
