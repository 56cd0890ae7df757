"""The four compressions of record batches, on cramjam. Decompression is bounded: a peer names no size we must trust.

Snappy comes in Java's framing (xerial: an 8-byte magic, two version numbers, then blocks with a 4-byte length) or raw.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Any, Final

import cramjam

from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Buffer


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_NAMES: Final = {"none": 0, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK: Final = 32 * 1024
_INT: Final = Struct(">i")
_FIRST_GUESS: Final = 64 * 1024


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    match codec:
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=6 if level in (None, -1) else level))
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            return _compress_lz4(data, 1 if level is None else level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=level if level is not None else 3))
        case Codec.NONE:
            return bytes(data)


def decompress(codec: int, data: Buffer, limit_bytes: int) -> Buffer:
    """The content, or a ProtocolError when it is damaged or larger than limit_bytes."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return _decompress_into(cramjam.gzip, data, limit_bytes)
        case Codec.SNAPPY:
            return _decompress_snappy(data, limit_bytes)
        case Codec.LZ4:
            return _decompress_into(cramjam.lz4, data, limit_bytes)
        case Codec.ZSTD:
            return _decompress_into(cramjam.zstd, data, limit_bytes)
        case _:
            raise ProtocolError(f"compression {codec} is unknown")


def _decompress_into(library: Any, data: Buffer, limit_bytes: int) -> Buffer:
    """Into a buffer that doubles up to the limit: `decompress` would believe whatever size the peer's stream expands
    to."""
    size = min(max(_FIRST_GUESS, 4 * len(data)), limit_bytes)
    while True:
        target = bytearray(size + 1)
        try:
            written = library.decompress_into(data, target)
        except Exception as error:  # cramjam raises DecompressionError for damage and for a full target alike
            if size >= limit_bytes:
                raise ProtocolError(
                    f"a batch is damaged, or larger than {limit_bytes} bytes when decompressed: {error}"
                ) from None
            if not _ran_out_of_room(error):
                raise ProtocolError(f"a batch cannot be decompressed: {error}") from None
        else:
            if written <= size:
                return memoryview(target)[:written]
            if size >= limit_bytes:
                raise ProtocolError(f"a batch is larger than {limit_bytes} bytes when decompressed")
        size = min(size * 4, limit_bytes)


def _ran_out_of_room(error: Exception) -> bool:
    text = str(error).lower()
    return "failed to write whole buffer" in text or "too small" in text or "write zero" in text


def _compress_lz4(data: Buffer, level: int) -> bytes:
    """In blocks that do not refer to each other: Kafka's reader knows no others, and cramjam links them by default."""
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # it takes nothing else
    return bytes(compressor.finish())


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        out += _INT.pack(len(block))
        out += block
    return bytes(out)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> Buffer:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, 0, limit_bytes)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    if position > len(view):
        raise ProtocolError("the header of a snappy stream is cut short")
    while position < len(view):
        if position + 4 > len(view):
            raise ProtocolError("a snappy block has no length")
        (length,) = _INT.unpack_from(view, position)
        position += 4
        if length < 0 or length > len(view) - position:
            raise ProtocolError(f"a snappy block of {length} bytes runs over its batch")
        out += _decompress_snappy_block(view[position : position + length], len(out), limit_bytes)
        position += length
    return out


def _decompress_snappy_block(block: memoryview, already: int, limit_bytes: int) -> Buffer:
    """Raw snappy begins with its uncompressed size; check that before anything is allocated."""
    size = shift = 0
    for index in range(min(5, len(block))):
        size |= (block[index] & 0x7F) << shift
        if block[index] < 0x80:
            break
        shift += 7
    else:
        raise ProtocolError("a snappy block has no size")
    if already + size > limit_bytes:
        raise ProtocolError(f"a batch is larger than {limit_bytes} bytes when decompressed")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except Exception as error:
        raise ProtocolError(f"a snappy block cannot be decompressed: {error}") from None
