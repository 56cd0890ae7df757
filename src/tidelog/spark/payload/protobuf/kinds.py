"""What each Protobuf field is as a column.

Unsigned 64-bit numbers are decimal(20,0), enums their names, maps maps. Well-known types are what they mean:
Timestamp and Duration, wrappers as nullable values, Struct, Value and ListValue as JSON text. A message without
fields (Empty) is a boolean: whether it is there. A message that holds itself has no columns and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tidelog.spark.payload.errors import SchemaError

_F = FieldDescriptor
SCALARS = {
    _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_FLOAT: pa.float32(),
    _F.TYPE_INT32: pa.int32(),
    _F.TYPE_SINT32: pa.int32(),
    _F.TYPE_SFIXED32: pa.int32(),
    _F.TYPE_UINT32: pa.int64(),
    _F.TYPE_FIXED32: pa.int64(),
    _F.TYPE_INT64: pa.int64(),
    _F.TYPE_SINT64: pa.int64(),
    _F.TYPE_SFIXED64: pa.int64(),
    _F.TYPE_UINT64: pa.decimal128(20, 0),
    _F.TYPE_FIXED64: pa.decimal128(20, 0),
    _F.TYPE_BOOL: pa.bool_(),
    _F.TYPE_STRING: pa.string(),
    _F.TYPE_BYTES: pa.binary(),
    _F.TYPE_ENUM: pa.string(),
}
TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
JSON_TEXTS = frozenset(("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"))


@dataclass(frozen=True, slots=True)
class Plain:
    """A scalar or an enum: the value that the message gives."""

    type: pa.DataType
    field: FieldDescriptor


@dataclass(frozen=True, slots=True)
class Special:
    """A message that is one value: a well-known type, or one without fields."""

    type: pa.DataType
    message: Descriptor


@dataclass(frozen=True, slots=True)
class Record:
    message: Descriptor
    fields: tuple[Field, ...]

    @property
    def type(self) -> pa.DataType:
        return pa.struct([pa.field(field.name, field.type) for field in self.fields])


Kind = Plain | Special | Record


@dataclass(frozen=True, slots=True)
class Field:
    """`shape` is one, many or map; `key` and `kind` are those of a map's entries. `presence`: unset is null."""

    name: str
    shape: str
    kind: Kind
    presence: bool
    key: Plain | None = None

    @property
    def type(self) -> pa.DataType:
        if self.key is not None:
            return pa.map_(self.key.type, self.kind.type)
        return pa.list_(pa.field("element", self.kind.type)) if self.shape == "many" else self.kind.type


def record(message: Descriptor) -> Kind:
    """The whole value: a struct, unless the message is one of those that mean a single value."""
    return _message(message, "value", ())


def _message(message: Descriptor, path: str, within: tuple[str, ...]) -> Kind:
    name = message.full_name
    if name in (TIMESTAMP, DURATION):
        return Special(pa.timestamp("us", "UTC") if name == TIMESTAMP else pa.duration("us"), message)
    if name in WRAPPERS:
        return Special(SCALARS[message.fields_by_name["value"].type], message)
    if name in JSON_TEXTS:
        return Special(pa.string(), message)
    if not message.fields:
        return Special(pa.bool_(), message)
    if name in within:
        raise SchemaError(f"Protobuf message {name} holds itself (at {path}): a recursive type has no columns")
    return Record(message, tuple(_field(field, f"{path}.{field.name}", (*within, name)) for field in message.fields))


def _field(field: FieldDescriptor, path: str, within: tuple[str, ...]) -> Field:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key, value = inner.fields_by_name["key"], inner.fields_by_name["value"]
        return Field(field.name, "map", _kind(value, path, within), False, Plain(SCALARS[key.type], key))
    shape = "many" if field.is_repeated else "one"
    return Field(field.name, shape, _kind(field, path, within), shape == "one" and field.has_presence)


def _kind(field: FieldDescriptor, path: str, within: tuple[str, ...]) -> Kind:
    if field.type == _F.TYPE_GROUP:
        raise SchemaError(f"{path} is a group, which is not read")
    if field.type == _F.TYPE_MESSAGE:
        return _message(field.message_type, path, within)
    return Plain(SCALARS[field.type], field)
