"""Protobuf payloads to Arrow. The writer's schema only says which message it is: fields are told by their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from tidelog.spark.payload.errors import PayloadError, reason
from tidelog.spark.payload.protobuf.extracting import extract
from tidelog.spark.payload.protobuf.files import ProtoFile
from tidelog.spark.payload.protobuf.kinds import record
from tidelog.spark.payload.schema import Schema
from tidelog.spark.payload.wire import read_indexes


class ProtobufReader:
    def __init__(self, schema: Schema, message: str | None = None) -> None:
        self._schema = schema
        self._file = ProtoFile(schema)
        descriptor = self._file.message(message)
        self._name = descriptor.full_name
        self._kind = record(descriptor)
        self._class = message_factory.GetMessageClass(descriptor)
        self.arrow_type: pa.DataType = self._kind.type

    def parser(self, writer: Schema | None) -> Callable[[bytes], Any]:
        file = self._file if writer is None or writer == self._schema else ProtoFile(writer)
        wanted, decode = self._name, self._class.FromString
        known: dict[tuple[int, ...], str] = {}

        def parse(body: bytes) -> Any:
            indexes, start = read_indexes(body)
            name = known.get(indexes)
            if name is None:
                # Only those that the schema has are kept, so it cannot grow beyond them.
                name = known[indexes] = file.at(indexes).full_name
            if name != wanted:
                raise PayloadError(f"the record is a {name}, not a {wanted}")
            try:
                return decode(body[start:])
            except DecodeError as bad:
                raise PayloadError(f"not Protobuf of its schema: {reason(bad)}") from None

        return parse

    def build(self, values: list[Any]) -> pa.Array:
        return extract(self._kind, values)
