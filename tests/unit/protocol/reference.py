"""A second writer, plain and slow: it walks the facts, so it can do what the compiled one never does: unknown tags."""

from __future__ import annotations

import struct
from typing import Any

from tests.unit.protocol.catalog import Entry
from tidelog.protocol.schema import Field, StructSchema

NUMBERS = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
    "bool": ">?",
}


def uvarint(value: int) -> bytes:
    if value < 128:
        return bytes([value])
    return bytes([value % 128 + 128]) + uvarint(value // 128)


class Reference:
    def __init__(self, entry: Entry, version: int, unknown_tags: dict[int, bytes]) -> None:
        self.entry = entry
        self.version = version
        self.unknown_tags = unknown_tags
        self.is_flexible = entry.schema.flexible.has(version)

    def encode(self, message: Any) -> bytes:
        return self.structure(self.entry.schema.root, type(message)(), message)

    def structure(self, facts: StructSchema, fresh: Any, message: Any) -> bytes:
        body = b""
        tags = dict(self.unknown_tags)
        for field in facts.fields:
            value = getattr(message, field.name)
            if field.tagged.has(self.version):
                if value != getattr(fresh, field.name):
                    tags[field.tag] = self.field(field, value)
            elif field.versions.has(self.version):
                body += self.field(field, value)
        if not self.is_flexible:
            return body
        section = b"".join(uvarint(tag) + uvarint(len(data)) + data for tag, data in sorted(tags.items()))
        return body + uvarint(len(tags)) + section

    def field(self, field: Field, value: Any) -> bytes:
        if not field.is_array:
            return self.value(field, value)
        count = self.length("i", field, None if value is None else len(value))
        return count + b"".join(self.element(field, each) for each in value or ())

    def value(self, field: Field, value: Any) -> bytes:
        if field.is_struct and field.nullable.has(self.version):
            null = b"\0" if field.tagged.has(self.version) else b"\xff"
            return null if value is None else b"\1" + self.element(field, value)
        return self.element(field, value)

    def element(self, field: Field, value: Any) -> bytes:
        if field.is_struct:
            shape = getattr(self.entry.shape, field.type)
            return self.structure(self.entry.schema.structs[field.type], shape(), value)
        if field.type in NUMBERS:
            return struct.pack(NUMBERS[field.type], value)
        if field.type == "uuid":
            return bytes(value)
        data = value.encode() if isinstance(value, str) else value
        size = None if data is None else len(data)
        return self.length("h" if field.type == "string" else "i", field, size) + bytes(data or b"")

    def length(self, letter: str, field: Field, size: int | None) -> bytes:
        if self.is_flexible and not field.is_never_flexible:
            return uvarint(0 if size is None else size + 1)
        return struct.pack(">" + letter, -1 if size is None else size)
