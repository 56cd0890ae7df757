"""Rows to Avro payloads."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa

from tidelog.spark.payload.avro.members import from_members, has_members
from tidelog.spark.payload.avro.parsed import AvroSchema
from tidelog.spark.payload.avro.types import arrow_type
from tidelog.spark.payload.errors import PayloadError, reason
from tidelog.spark.payload.plain import rows
from tidelog.spark.payload.schema import Schema


class AvroWriter:
    prefix = b""

    def __init__(self, schema: Schema) -> None:
        self._schema = AvroSchema(schema)
        self.arrow_type: pa.DataType = arrow_type(self._schema)
        self._members = from_members(self._schema) if has_members(self._schema) else None

    def rows(self, column: pa.Array) -> list[Any]:
        plain = rows(column)
        return plain if self._members is None else [self._members(row) for row in plain]

    def payload(self, row: Any) -> bytes:
        out = BytesIO()
        try:
            fastavro.schemaless_writer(out, self._schema.compiled, row)
        except Exception as bad:
            raise PayloadError(f"the row is not of the Avro schema: {reason(bad)}") from None
        return out.getvalue()
