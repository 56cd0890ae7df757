"""Bytes <-> messages, for every message and version that the schemas know. The only door to the compiled codec.

A reader or writer is compiled when a (message, version) is first used and kept. Reading raises ProtocolError for any
bytes that are not such a message, and nothing else; writing raises ValueError (UnsupportedVersion among them) for a
message that cannot be written, which is the caller's bug.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.schema import MessageSchema, load_message
from tidelog.protocol.source import UnsupportedVersion

__all__ = ["Buffer", "UnsupportedVersion", "decode", "decode_from", "encode", "encode_parts", "schema_of"]

Buffer = bytes | memoryview
MessageT = TypeVar("MessageT", bound=Struct)

_readers: dict[tuple[type[Struct], int], Callable[[Buffer, int], tuple[Any, int]]] = {}
_writers: dict[tuple[type[Struct], int], Callable[[Any], list[Buffer]]] = {}
_carries_records: set[type[Struct]] = set()


def encode(message: Struct, version: int) -> bytes:
    return b"".join(encode_parts(message, version))


def encode_parts(message: Struct, version: int) -> list[Buffer]:
    """The same bytes in pieces: a records field is the very object that the message holds, for a gathering write."""
    shape = type(message)
    write = _writers.get((shape, version)) or _make_writer(shape, version)
    try:
        return write(message)
    except (struct.error, TypeError, AttributeError) as error:
        raise ValueError(f"{shape.__name__} v{version} cannot be written: {error}") from error


def decode(shape: type[MessageT], version: int, buffer: Buffer, position: int = 0) -> MessageT:
    """Reads a message that fills the buffer from the position to its last byte."""
    message, end = decode_from(shape, version, buffer, position)
    if end != len(buffer):
        raise ProtocolError(f"{shape.__name__} v{version}: {len(buffer) - end} bytes too many")
    return message


def decode_from(shape: type[MessageT], version: int, buffer: Buffer, position: int) -> tuple[MessageT, int]:
    """Reads a message at a position and returns it with the position behind it.

    Records are views of the buffer; everything else is copied out of it.
    """
    read = _readers.get((shape, version)) or _make_reader(shape, version)
    if shape in _carries_records:
        buffer = memoryview(buffer)
    elif not isinstance(buffer, bytes):
        # Everything would be copied anyway, and slicing bytes is twice as fast as slicing a view.
        buffer = bytes(buffer)
    try:
        result: tuple[MessageT, int] = read(buffer, position)
    except ProtocolError as error:
        raise ProtocolError(f"{shape.__name__} v{version}: {error}") from None
    except UnicodeDecodeError as error:
        raise ProtocolError(f"{shape.__name__} v{version}: a string is not UTF-8") from error
    except (IndexError, struct.error) as error:
        raise ProtocolError(f"{shape.__name__} v{version}: the bytes end too early") from error
    return result


def schema_of(shape: type[Struct]) -> MessageSchema:
    return load_message(shape.__module__.rpartition(".")[2], shape.__name__)


def _known_schema(shape: type[Struct], version: int) -> MessageSchema:
    schema = schema_of(shape)
    if not schema.versions.has(version):
        low, high = schema.versions
        raise UnsupportedVersion(f"{schema.name} has versions {low} to {high}, not {version}")
    return schema


def _make_reader(shape: type[Struct], version: int) -> Callable[[Buffer, int], tuple[Any, int]]:
    from tidelog.protocol.reader import compile_reader, has_records

    schema = _known_schema(shape, version)
    if has_records(schema):
        _carries_records.add(shape)
    return _readers.setdefault((shape, version), compile_reader(schema, version, shape))


def _make_writer(shape: type[Struct], version: int) -> Callable[[Any], list[Buffer]]:
    from tidelog.protocol.writer import compile_writer

    schema = _known_schema(shape, version)
    return _writers.setdefault((shape, version), compile_writer(schema, version, shape))
