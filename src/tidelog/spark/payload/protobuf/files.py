"""A Protobuf schema with its imports in a descriptor pool of its own.

A schema is .proto text, or a FileDescriptorProto in base64, which some clients register. Imports come from the
schema's references, from Protobuf's well-known types, or are Confluent's own. The order of messages is that of the
file: the wire format's indexes count by it.
"""

from __future__ import annotations

import base64
import binascii
import importlib
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from tidelog.spark.payload.errors import PayloadError, SchemaError, reason
from tidelog.spark.payload.protobuf.parser import parse
from tidelog.spark.payload.schema import Schema

_ROOT = "tidelog-payload.proto"
_WELL_KNOWN = (
    "any",
    "api",
    "descriptor",
    "duration",
    "empty",
    "field_mask",
    "source_context",
    "struct",
    "timestamp",
    "type",
    "wrappers",
)
_CONFLUENT = {
    "confluent/meta.proto": 'syntax = "proto3"; package confluent;',
    "confluent/type/decimal.proto": (
        'syntax = "proto3"; package confluent.type; '
        "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
    ),
}


class ProtoFile:
    def __init__(self, schema: Schema) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        self._texts = {named.name: named.schema.text for named in schema.every_reference()}
        self._added: set[str] = set()
        self.messages: list[Descriptor] = []
        file = _described(schema.text, _ROOT)
        self._add(file)
        package = f"{file.package}." if file.package else ""
        self.messages = [self._pool.FindMessageTypeByName(package + message.name) for message in file.message_type]
        self._tree = list(file.message_type)
        if not self.messages:
            raise SchemaError("the Protobuf schema has no message")

    def message(self, name: str | None) -> Descriptor:
        """By its full name, or by its name without the package; without one, the first of the file."""
        if name is None:
            return self.messages[0]
        package = self.messages[0].file.package
        for full in (name, f"{package}.{name}"):
            try:
                return self._pool.FindMessageTypeByName(full)
            except KeyError:
                continue
        known = ", ".join(message.full_name for message in self.messages)
        raise SchemaError(f"the Protobuf schema has no message {name!r}, it has {known}")

    def at(self, indexes: tuple[int, ...]) -> Descriptor:
        level: Any = self._tree
        path = [self.messages[0].file.package] if self.messages[0].file.package else []
        for index in indexes:
            if not 0 <= index < len(level):
                raise PayloadError(f"the schema has no message at index {list(indexes)}")
            path.append(level[index].name)
            level = _written(level[index].nested_type)
        return self._pool.FindMessageTypeByName(".".join(path))

    def indexes(self, message: Descriptor) -> tuple[int, ...]:
        names: list[str] = []
        outer: Descriptor | None = message
        while outer is not None:
            names.insert(0, outer.name)
            outer = outer.containing_type
        level: Any = self._tree
        found = []
        for name in names:
            here = [inner.name for inner in level]
            if name not in here:
                raise SchemaError(f"message {message.full_name} is not in the schema itself, but in what it imports")
            found.append(here.index(name))
            level = _written(level[found[-1]].nested_type)
        return tuple(found)

    def _add(self, file: FileDescriptorProto) -> None:
        for name in file.dependency:
            if name not in self._added:
                self._added.add(name)
                self._add(self._import(name))
        try:
            self._pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError, KeyError) as bad:
            raise SchemaError(f"the Protobuf schema cannot be used: {reason(bad)}") from None

    def _import(self, name: str) -> FileDescriptorProto:
        if name in self._texts:
            return _described(self._texts[name], name)
        short = name.removeprefix("google/protobuf/").removesuffix(".proto")
        if name == f"google/protobuf/{short}.proto" and short in _WELL_KNOWN:
            module = importlib.import_module(f"google.protobuf.{short}_pb2")
            return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        if name in _CONFLUENT:
            return parse(_CONFLUENT[name], name)
        raise SchemaError(f"import {name!r} is neither among the schema's references nor a well-known file")


def _written(level: Any) -> list[Any]:
    """Messages of the text. A map's entry is none: Java's serializer, the reference, does not count it."""
    return [message for message in level if not message.options.map_entry]


def _described(text: str, name: str) -> FileDescriptorProto:
    compact = "".join(text.split())
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(compact, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return parse(text, name)
    file.name = name
    return file
