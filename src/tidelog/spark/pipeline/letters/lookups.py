"""Tables of other flows that retry rules may ask, by the flows' names, as they are when a batch is judged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.spark.pipeline.letters.options import DeadLetters
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.sinks import table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Lookups:
    def __init__(self, pipeline: Pipeline, letters: DeadLetters) -> None:
        self._tables = {name: table_of(pipeline.flows[name].table) for name in letters.lookups}
        self._letters = letters

    def register(self, spark: SparkSession) -> DeadLetters:
        """Views by the flows' names. As long as one of the tables is not there no retry rule can be asked, and none is
        true: the rules that come back say so."""
        from tidelog.spark.lake.frames import frame_of

        for name, table in self._tables.items():
            frame = frame_of(spark, table.snapshot())
            if frame is None:
                # Not asked: what columns the table will have, nobody knows.
                never = tuple((rule, "false") for rule, _ in self._letters.retry_rules)
                return replace(self._letters, retry_rules=never)
            frame.createOrReplaceTempView(name)
        return self._letters
