"""The reader and the writer of each format. A format's library is imported when the format is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from tidelog.spark.payload.errors import SchemaError
from tidelog.spark.payload.schema import AVRO, JSON, PROTOBUF, Schema


class Reader(Protocol):
    arrow_type: pa.DataType

    def parser(self, writer: Schema | None) -> Callable[[bytes], Any]:
        """From a payload to a value of this reader; raises PayloadError, and nothing else, for a bad one."""

    def build(self, values: list[Any]) -> pa.Array:
        """Values of the parser's, or None for null, as one array."""


class Writer(Protocol):
    arrow_type: pa.DataType
    prefix: bytes

    def rows(self, column: pa.Array) -> list[Any]: ...

    def payload(self, row: Any) -> bytes: ...


def reader(schema: Schema, message: str | None) -> Reader:
    _check(schema, message)
    if schema.format == AVRO:
        from tidelog.spark.payload.avro.reading import AvroReader

        return AvroReader(schema)
    if schema.format == JSON:
        from tidelog.spark.payload.json_schema.reading import JsonReader

        return JsonReader(schema)
    from tidelog.spark.payload.protobuf.reading import ProtobufReader

    return ProtobufReader(schema, message)


def writer(schema: Schema, message: str | None) -> Writer:
    _check(schema, message)
    if schema.format == AVRO:
        from tidelog.spark.payload.avro.writing import AvroWriter

        return AvroWriter(schema)
    if schema.format == JSON:
        from tidelog.spark.payload.json_schema.writing import JsonWriter

        return JsonWriter(schema)
    from tidelog.spark.payload.protobuf.writing import ProtobufWriter

    return ProtobufWriter(schema, message)


def _check(schema: Schema, message: str | None) -> None:
    if message is not None and schema.format != PROTOBUF:
        raise SchemaError(f"message names a Protobuf message, the schema is {schema.format}")
