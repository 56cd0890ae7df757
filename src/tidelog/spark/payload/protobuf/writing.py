"""Rows to Protobuf payloads, with the message's indexes in front."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from google.protobuf import message_factory

from tidelog.spark.payload.errors import PayloadError, reason
from tidelog.spark.payload.plain import rows
from tidelog.spark.payload.protobuf.files import ProtoFile
from tidelog.spark.payload.protobuf.filling import fill
from tidelog.spark.payload.protobuf.kinds import record
from tidelog.spark.payload.schema import Schema
from tidelog.spark.payload.wire import write_indexes


class ProtobufWriter:
    def __init__(self, schema: Schema, message: str | None = None) -> None:
        file = ProtoFile(schema)
        descriptor = file.message(message)
        self.prefix = write_indexes(file.indexes(descriptor))
        self._kind = record(descriptor)
        self._class = message_factory.GetMessageClass(descriptor)
        self.arrow_type: pa.DataType = self._kind.type

    def rows(self, column: pa.Array) -> list[Any]:
        return rows(column)

    def payload(self, row: Any) -> bytes:
        message = self._class()
        try:
            fill(self._kind, message, row)
            return bytes(message.SerializeToString(deterministic=True))
        except PayloadError:
            raise
        except Exception as bad:
            raise PayloadError(f"the row is not of the Protobuf schema: {reason(bad)}") from None
