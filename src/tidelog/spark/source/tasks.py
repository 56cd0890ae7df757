"""Spark's input partitions: one task each. Batch and stream readers hand out the same ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from tidelog.spark.source.options import SourceOptions
from tidelog.spark.source.splitting import Range, split
from tidelog.spark.source.task import Task

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.spark.link import At


class Piece(InputPartition):  # type: ignore[misc]  # pyspark has no types here
    def __init__(self, task: Task) -> None:
        super().__init__(str(task))
        self.task = task


def pieces(ranges: Mapping[At, Range], ids: Mapping[str, str], options: SourceOptions) -> list[Piece]:
    parts = split(ranges, at_least=options.min_partitions, records_max=options.max_records_per_partition)
    return [
        Piece(
            Task(
                kafka=dict(options.kafka),
                topic=topic,
                partition=partition,
                start=start,
                end=end,
                topic_id=ids.get(topic),
                isolation=options.isolation,
                headers=options.include_headers,
                fail_on_data_loss=options.fail_on_data_loss,
                silence_s=options.silence_s,
                log_dirs=options.log_dirs,
            )
        )
        for (topic, partition), start, end in parts
    ]


def read_piece(piece: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(piece, Piece):  # what Spark makes of an empty plan
        return iter(())
    from tidelog.spark.source.rows import read

    return read(piece.task)
