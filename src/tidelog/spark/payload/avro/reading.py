"""Avro payloads to Arrow: each record by its writer's schema, resolved to the reader's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tidelog.spark.payload.avro.compiling import compile_reader
from tidelog.spark.payload.avro.matching import check_logical_types
from tidelog.spark.payload.avro.parsed import AvroSchema
from tidelog.spark.payload.avro.types import arrow_type
from tidelog.spark.payload.errors import PayloadError, reason
from tidelog.spark.payload.schema import Schema


class AvroReader:
    def __init__(self, schema: Schema) -> None:
        self._reader = AvroSchema(schema)
        self.arrow_type: pa.DataType = arrow_type(self._reader)

    def parser(self, writer: Schema | None) -> Callable[[bytes], Any]:
        """Reads what `writer` wrote; without one, what the reader's own schema wrote."""
        written = self._reader if writer is None else AvroSchema(writer)
        check_logical_types(written, self._reader)
        read = compile_reader(written, self._reader)

        def parse(body: bytes) -> Any:
            try:
                value, end = read(body)
            except (EOFError, IndexError):
                raise PayloadError("the Avro record ends too early") from None
            except PayloadError:
                raise
            except (ValueError, RecursionError) as bad:
                raise PayloadError(f"not Avro of its schema: {reason(bad)}") from None
            if end != len(body):
                raise PayloadError(f"{len(body) - end} bytes follow the Avro record")
            return value

        return parse

    def build(self, values: list[Any]) -> pa.Array:
        return pa.array(values, type=self.arrow_type)
