"""The bytes of a .snapshot file: i16 version 1, u32 CRC-32C of the rest, i32 count, entries of 46 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from tidelog.log.errors import CorruptFileError
from tidelog.protocol.crc import crc32c

_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_VERSION: Final = 1
assert _ENTRY.size == 46


class SnapshotEntry(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_data_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


SnapshotFields: TypeAlias = tuple[int, int, int, int, int, int, int, int]


def encode_snapshot(entries: Sequence[SnapshotFields]) -> bytes:
    pack = _ENTRY.pack
    body = _COUNT.pack(len(entries)) + b"".join([pack(*entry) for entry in entries])
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[SnapshotEntry]:
    start = _HEAD.size + _COUNT.size
    if len(data) < start:
        raise CorruptFileError("a producer snapshot is shorter than its head")
    version, crc = _HEAD.unpack_from(data)
    if version != _VERSION or crc32c(memoryview(data)[_HEAD.size :]) != crc:
        raise CorruptFileError("a producer snapshot is damaged, or of an unknown version")
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    if count * _ENTRY.size != len(data) - start:
        raise CorruptFileError(f"a producer snapshot claims {count} entries")
    return [SnapshotEntry._make(fields) for fields in _ENTRY.iter_unpack(memoryview(data)[start:])]
