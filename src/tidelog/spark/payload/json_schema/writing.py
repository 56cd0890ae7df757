"""Rows to JSON payloads, each validated before it is written."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from tidelog.spark.payload.errors import PayloadError, reason
from tidelog.spark.payload.json_schema.document import Document
from tidelog.spark.payload.json_schema.layout import to_json
from tidelog.spark.payload.json_schema.shape import arrow_type
from tidelog.spark.payload.plain import rows
from tidelog.spark.payload.schema import Schema


class JsonWriter:
    prefix = b""

    def __init__(self, schema: Schema) -> None:
        self._document = Document(schema)
        self.arrow_type: pa.DataType = arrow_type(self._document.shape)
        self._json = to_json(self._document.shape)

    def rows(self, column: pa.Array) -> list[Any]:
        plain = rows(column)
        return plain if self._json is None else [self._json(row) for row in plain]

    def payload(self, row: Any) -> bytes:
        try:
            self._document.validator.validate(row)
        except Exception as bad:
            raise PayloadError(f"the row is not of the JSON Schema: {reason(bad)}") from None
        return msgspec.json.encode(row)
