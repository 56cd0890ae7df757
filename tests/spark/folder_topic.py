"""A folder of Parquet files that stands in for a topic of one partition: Spark streams it by itself, a file a batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.plans import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"


class FolderTopic:
    def __init__(self, home: Path, name: str) -> None:
        self.name = name
        self.home = home
        self.records = 0
        home.mkdir()

    def write(self, values: Sequence[bytes]) -> None:
        """One file, which is one batch."""
        number, count = self.records, len(values)
        self.records += count
        table = pa.table(
            {
                "key": pa.array([None] * count, pa.binary()),
                "value": pa.array(values, pa.binary()),
                "topic": [self.name] * count,
                "partition": pa.array([0] * count, pa.int32()),
                "offset": pa.array(range(number, number + count), pa.int64()),
                "timestamp": pa.array([datetime(2026, 11, 16, tzinfo=UTC)] * count, pa.timestamp("us", "UTC")),
                "timestampType": pa.array([0] * count, pa.int32()),
            }
        )
        pq.write_table(table, self.home / f"_{number}")  # hidden from Spark until it is whole
        # Spark takes files by their time, and in any order where two have the same, as files made within one tick have.
        os.utime(self.home / f"_{number}", times=(number, number))
        (self.home / f"_{number}").rename(self.home / f"{number}.parquet")

    def source(self, spark: SparkSession) -> Source:
        opened = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.home))

        def open_files(flow: Ingest, committing: bool) -> DataFrame:
            return opened  # the same for all who read it, as the pipeline's own

        return open_files
