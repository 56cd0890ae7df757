"""How records are framed in the internal topics: which shape a stored value has, and in which version.

Metadata log: uvarint frame version 1, uvarint record type, uvarint record version, body; no key.
Coordinator topics: key = int16 record type, fields; value = int16 version, fields, or null for a tombstone.
A type or version that a newer broker may have written reads as None; bytes that are no such record, as ProtocolError.
"""

from __future__ import annotations

import struct
from functools import cache
from importlib import import_module
from typing import Any

from msgspec import Struct

from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.codec import Buffer, decode, encode, schema_of
from tidelog.protocol.schema import message_names
from tidelog.protocol.source import read_uvarint, write_uvarint

METADATA = "records_metadata"
GROUP = "records_group"
TRANSACTION = "records_transaction"
SHARE = "records_share"
# The remote log's topic frames its records as the metadata log does.
STORAGE = "records_storage"

_FRAME_VERSION = 1
_INT16 = struct.Struct(">h")


def encode_metadata_record(record: Struct, version: int) -> bytes:
    head = write_uvarint(_FRAME_VERSION) + write_uvarint(_type_of(record)) + write_uvarint(version)
    return head + encode(record, version)


def decode_metadata_record(value: Buffer, module: str = METADATA) -> tuple[Struct, int] | None:
    """The record and its version."""
    try:
        frame_version, position = _uvarint(value, 0)
        record_type, position = _uvarint(value, position)
        version, position = _uvarint(value, position)
    except IndexError as error:
        raise ProtocolError("a metadata record that ends within its frame") from error
    if frame_version != _FRAME_VERSION:
        raise ProtocolError(f"a metadata record with the frame version {frame_version}")
    shape = _shapes(module, "metadata").get(record_type)
    if shape is None or not schema_of(shape).versions.has(version):
        return None
    return decode(shape, version, value, position), version


def encode_coordinator_key(key: Struct) -> bytes:
    return _INT16.pack(_type_of(key)) + encode(key, 0)


def encode_coordinator_value(value: Struct, version: int) -> bytes:
    return _INT16.pack(version) + encode(value, version)


def decode_coordinator_key(key: Buffer, module: str = GROUP) -> Struct | None:
    record_type = _leading_int16(key)
    shape = _shapes(module, "coordinator-key").get(record_type)
    return None if shape is None else decode(shape, 0, key, 2)


def decode_coordinator_value(key: Struct, value: Buffer) -> tuple[Struct, int] | None:
    """The value that belongs to a decoded key, and its version."""
    shape = _shapes(type(key).__module__.rpartition(".")[2], "coordinator-value")[_type_of(key)]
    version = _leading_int16(value)
    if not schema_of(shape).versions.has(version):
        return None
    return decode(shape, version, value, 2), version


def _leading_int16(buffer: Buffer) -> int:
    if len(buffer) < 2:
        raise ProtocolError("a coordinator record of less than two bytes")
    number: int = _INT16.unpack_from(buffer)[0]
    return number


def _uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    first = buffer[position]
    return (first, position + 1) if first < 0x80 else read_uvarint(buffer, position + 1, first)


def _type_of(record: Struct) -> int:
    shape: Any = type(record)
    record_type: int = shape.API_KEY
    return record_type


@cache
def _shapes(module: str, kind: str) -> dict[int, type[Struct]]:
    """The shapes of one kind in a module of messages, by record type."""
    shapes: Any = import_module(f"tidelog.protocol.messages.{module}")
    found = [getattr(shapes, name) for name in message_names(module)]
    return {shape.API_KEY: shape for shape in found if schema_of(shape).kind == kind}
