"""`spark.read.format("tidelog")` and `spark.readStream.format("tidelog")`: the log as a table, without any jar; and the
door to the sink (spark/sink), as Spark has one class per format.

Spark imports this in every session that uses any Python data source (through the top-level pyspark_tidelog), so only
what a session has anyway is imported here; readers load the rest.

    table.py, options.py    what a user may ask for
    view.py                 what the planner sees of the log (what a checkpoint keeps: spark/offsets.py)
    splitting.py            which task reads what, and how much a micro-batch takes
    batch.py, stream.py     Spark's two kinds of readers
    rows.py                 what a task does: raw batches to Arrow
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from tidelog.spark.source.options import SourceOptions

__all__ = ["TidelogSource", "columns"]


class TidelogSource(DataSource):  # type: ignore[misc]  # pyspark has no types here
    """Made when `load()` is called, which asks for the schema: a bad option shows there, before anything is planned.
    Who writes has other options, so they are read only then."""

    @property
    def _parsed(self) -> SourceOptions:
        from tidelog.spark.source.options import parse_options

        return parse_options(self.options)

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        return columns(headers=self._parsed.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from tidelog.spark.source.batch import BatchReader

        self._check(schema)
        return BatchReader(self._parsed)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from tidelog.spark.source.stream import StreamReader

        self._check(schema)
        return StreamReader(self._parsed)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tidelog.spark.sink.options import parse_sink_options
        from tidelog.spark.sink.shape import check_columns
        from tidelog.spark.sink.writers import BatchWriter
        from tidelog.spark.source.options import OptionError

        if overwrite:
            raise OptionError("mode=overwrite: a log is only added to; allowed is append")
        options = parse_sink_options(self.options, stream=False)
        return BatchWriter(options, check_columns(schema, options.topic, options.timestamp_column))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tidelog.spark.sink.options import parse_sink_options
        from tidelog.spark.sink.shape import check_columns
        from tidelog.spark.sink.writers import StreamWriter

        options = parse_sink_options(self.options, stream=True)
        return StreamWriter(options, check_columns(schema, options.topic, options.timestamp_column))

    def _check(self, schema: StructType) -> None:
        from tidelog.spark.source.options import OptionError

        if schema.simpleString() != self.schema().simpleString():
            raise OptionError(f"the columns of the source tidelog are fixed, leave out schema(): {self.schema()}")


def columns(*, headers: bool) -> StructType:
    """Those of Spark's own Kafka source."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if headers:
        pair = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(pair)))
    return StructType(fields)
