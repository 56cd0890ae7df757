"""The Confluent wire format: a zero byte, the schema's id as four bytes (big-endian), the payload.

Before a Protobuf payload stand the indexes that lead to its message in the schema: a count and that many numbers, all
as zig-zag varints; a single zero byte is the usual [0], the first message of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tidelog.spark.payload.errors import PayloadError

MAGIC = 0
_HEAD = struct.Struct(">BI")
HEAD_SIZE = _HEAD.size

# Deeper than any message is nested; a forged count is refused before a list of that size is made.
_INDEXES_MAX = 64
_VARINT_SIZE_MAX = 10


def schema_id(record: bytes) -> int:
    if len(record) < HEAD_SIZE:
        raise PayloadError(f"{len(record)} bytes are too few for magic byte and schema id")
    magic, number = _HEAD.unpack_from(record)
    if magic != MAGIC:
        raise PayloadError(f"magic byte {magic}, not 0: this is not the Confluent wire format")
    return int(number)


def head(number: int) -> bytes:
    return _HEAD.pack(MAGIC, number)


def read_indexes(body: bytes) -> tuple[tuple[int, ...], int]:
    """The message's indexes and where the message begins."""
    count, position = _read_varint(body, 0)
    if count == 0:
        return (0,), position
    if not 0 < count <= _INDEXES_MAX:
        raise PayloadError(f"{count} message indexes, at most {_INDEXES_MAX} are read")
    indexes = []
    for _ in range(count):
        index, position = _read_varint(body, position)
        indexes.append(index)
    return tuple(indexes), position


def write_indexes(indexes: Sequence[int]) -> bytes:
    if tuple(indexes) == (0,):
        return b"\x00"
    return b"".join(_varint(number) for number in (len(indexes), *indexes))


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    raw = 0
    for shift in range(_VARINT_SIZE_MAX):
        if position >= len(data):
            raise PayloadError("the message indexes end too early")
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
    raise PayloadError(f"a message index is longer than {_VARINT_SIZE_MAX} bytes")


def _varint(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)
