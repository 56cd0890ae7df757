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


def decompress_into(codec: int, data: Buffer, target: memoryview) -> int | None:
    """The content to the start of the target; how long it is, None when that is not less than there is room for.
    ProtocolError when it is damaged."""
    match codec:
        case Codec.GZIP:
            library: Any = cramjam.gzip
        case Codec.SNAPPY:
            return _decompress_snappy_into(memoryview(data), target)
        case Codec.LZ4:
            library = cramjam.lz4
        case Codec.ZSTD:
            library = cramjam.zstd
        case _:
            raise ProtocolError(f"compression {codec} is unknown")
    try:
        written: int = library.decompress_into(data, target)
    except Exception as error:
        if _ran_out_of_room(error):
            return None
        raise ProtocolError(f"a batch cannot be decompressed: {error}") from None
    return written if written < len(target) else None


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
    blocks = _snappy_blocks(view)
    if blocks is None:
        return _decompress_snappy_block(view, 0, limit_bytes)
    out = bytearray()
    for block in blocks:
        out += _decompress_snappy_block(block, len(out), limit_bytes)
    return out


def _decompress_snappy_into(data: memoryview, target: memoryview) -> int | None:
    at, blocks = 0, _snappy_blocks(data)
    for block in [data] if blocks is None else blocks:
        size = _snappy_size(block)
        if at + size >= len(target):
            return None
        try:
            written = cramjam.snappy.decompress_raw_into(block, target[at : at + size])
        except Exception as error:
            raise ProtocolError(f"a snappy block cannot be decompressed: {error}") from None
        if written != size:
            raise ProtocolError(f"a snappy block of {size} bytes has {written}")
        at += size
    return at if at < len(target) else None


def _snappy_blocks(view: memoryview) -> list[memoryview] | None:
    """Of a stream in Java's framing; None for a raw one."""
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return None
    blocks: list[memoryview] = []
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
        blocks.append(view[position : position + length])
        position += length
    return blocks


def _decompress_snappy_block(block: memoryview, already: int, limit_bytes: int) -> Buffer:
    size = _snappy_size(block)
    if already + size > limit_bytes:
        raise ProtocolError(f"a batch is larger than {limit_bytes} bytes when decompressed")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except Exception as error:
        raise ProtocolError(f"a snappy block cannot be decompressed: {error}") from None


def _snappy_size(block: memoryview) -> int:
    """Raw snappy begins with its uncompressed size; to be checked before anything is allocated."""
    size = shift = 0
    for index in range(min(5, len(block))):
        size |= (block[index] & 0x7F) << shift
        if block[index] < 0x80:
            return size
        shift += 7
    raise ProtocolError("a snappy block has no size")
