"""JSON payloads to Arrow: parsed, validated against the reader's schema, and laid out in its shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from tidelog.spark.payload.errors import PayloadError, reason
from tidelog.spark.payload.json_schema.document import Document
from tidelog.spark.payload.json_schema.layout import to_floats, to_texts
from tidelog.spark.payload.json_schema.shape import arrow_type
from tidelog.spark.payload.schema import Schema


class JsonReader:
    def __init__(self, schema: Schema) -> None:
        self._document = Document(schema)
        self.arrow_type: pa.DataType = arrow_type(self._document.shape)
        self._texts = to_texts(self._document.shape)
        self._floats = to_floats(self._document.shape)

    def parser(self, writer: Schema | None) -> Callable[[bytes], Any]:
        """JSON says itself what it holds: who wrote it makes no difference, it must be of the reader's schema."""
        decode = msgspec.json.decode
        validator, texts = self._document.validator, self._texts

        def parse(body: bytes) -> Any:
            try:
                value = decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as bad:
                raise PayloadError(f"not JSON: {reason(bad)}") from None
            if not validator.is_valid(value):
                raise PayloadError(_why(validator, value))
            return value if texts is None else texts(value)

        return parse

    def build(self, values: list[Any]) -> pa.Array:
        try:
            return pa.array(values, type=self.arrow_type)
        except pa.ArrowInvalid:
            if self._floats is None:
                raise
        return pa.array([self._floats(value) for value in values], type=self.arrow_type)


def _why(validator: Any, value: Any) -> str:
    error = next(iter(validator.iter_errors(value)))
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
    return reason(PayloadError(f"not of its JSON Schema: value{path}: {error.message}"))
