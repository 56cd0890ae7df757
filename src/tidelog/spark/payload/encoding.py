"""A column of values to a column of records in the wire format: the work of `to_confluent`, without Spark.

There is no permissive mode: a row that its schema cannot hold is refused before anyone reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidelog.spark.payload import formats
from tidelog.spark.payload.errors import PayloadError
from tidelog.spark.payload.fitting import fit
from tidelog.spark.payload.schema import Schema
from tidelog.spark.payload.wire import head


@dataclass(frozen=True, slots=True)
class EncodeSpec:
    """`schema.id` is the id that every record carries."""

    schema: Schema
    message: str | None = None


class Encoder:
    def __init__(self, spec: EncodeSpec) -> None:
        assert spec.schema.id is not None
        self._writer = formats.writer(spec.schema, spec.message)
        self._head = head(spec.schema.id) + self._writer.prefix

    @property
    def arrow_type(self) -> pa.DataType:
        return self._writer.arrow_type

    def encode(self, column: pa.Array) -> pa.Array:
        rows = self._writer.rows(fit(column, self._writer.arrow_type))
        start, payload = self._head, self._writer.payload
        records: list[bytes | None] = []
        for number, row in enumerate(rows):
            try:
                # null is a tombstone and stays one.
                records.append(None if row is None else start + payload(row))
            except PayloadError as bad:
                raise PayloadError(f"row {number} of {len(rows)} in its batch: {bad}") from None
        return pa.array(records, type=pa.binary())
