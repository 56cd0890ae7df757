"""The tables of a pipeline, by what its file says, and their rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidelog.spark.lake import LakeTable, open_table
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.pipeline.model import Pipeline, Table


def tables(pipeline: Pipeline) -> Iterator[Table]:
    for flow in pipeline.flows.values():
        yield from flow.tables


def opened(table: Table) -> LakeTable:
    return open_table(table.path, table.format, partition_by=table.partition_by)


def rows_in(table: LakeTable) -> int | None:
    """Those that are in the files, not those that the table says it has; None when a file is not there."""
    try:
        return sum(int(batch.num_rows) for batch in table.rows())
    except (OSError, LakeError):
        return None


def read(table: LakeTable) -> list[dict[str, Any]]:
    """All rows of a table that is as small as the demo's."""
    import pyarrow.parquet as pq

    return [row for file in table.files() for row in pq.ParquetFile(file).read().to_pylist()]
