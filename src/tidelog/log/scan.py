"""Walking over the batches of a log file, by their headers or whole with their CRC. Nothing in the file is trusted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Protocol

from tidelog.kernel.ports import File
from tidelog.log.reading import Read, waiting
from tidelog.protocol.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    crc_is_valid,
    read_header,
)

_HEADERS_CHUNK: Final = 4096
_BATCHES_CHUNK: Final = 256 * 1024
_SEARCH_CHUNK: Final = 1 << 20
_SEARCHED_BATCH_MAX: Final = 1 << 28


class Readable(Protocol):
    def read(self, position: int, length: int) -> bytes: ...


def header_fits(header: BatchHeader, room: int) -> bool:
    """Whether the fields can be those of a whole batch within the room."""
    return (
        HEADER_SIZE - LOG_OVERHEAD <= header.batch_length <= room - LOG_OVERHEAD
        and header.magic == MAGIC
        and header.base_offset >= 0
        and header.last_offset_delta >= 0
    )


def scan_headers(file: File, position: int, end: int, read: Read = waiting) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the whole batches between two positions; ends early at something that is none."""
    chunk: bytes | memoryview = b""
    start = 0
    while 0 <= position <= end - HEADER_SIZE:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            chunk, start, at = read(file, position, min(_HEADERS_CHUNK, end - position)), position, 0
            if len(chunk) < HEADER_SIZE:
                return
        header = read_header(chunk, at)
        if not header_fits(header, end - position):
            return
        yield position, header
        position += header.size


def scan_batches(
    file: File, end: int, next_offset: int, epoch: int, position: int = 0
) -> Iterator[tuple[int, BatchHeader]]:
    """The same up to the first batch that is partial or damaged, goes back in offsets or in leader epoch. An older
    epoch after a newer one is what a power cut leaves of a truncated tail: valid bytes of a batch that was given up,
    behind one that took its place."""
    chunk, start = b"", position
    while position + HEADER_SIZE <= end:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            chunk, start, at = file.read(position, min(_BATCHES_CHUNK, end - position)), position, 0
            if len(chunk) < HEADER_SIZE:
                return
        header = read_header(chunk, at)
        if not header_fits(header, end - position) or header.base_offset < next_offset or header.leader_epoch < epoch:
            return
        if at + header.size > len(chunk):
            chunk, start, at = file.read(position, max(header.size, min(_BATCHES_CHUNK, end - position))), position, 0
            if len(chunk) < header.size:
                return
        if not crc_is_valid(memoryview(chunk)[at : at + header.size], header):
            return
        yield position, header
        position += header.size
        next_offset, epoch = header.next_offset, header.leader_epoch


def find_batch(
    file: Readable, position: int, size: int, next_offset: int, limit: int
) -> tuple[int, BatchHeader] | None:
    """The first whole, valid batch at or behind the position whose offsets are in order."""
    # The upper half of an offset is the same for the next four thousand million records; the format's number follows.
    pattern = re.compile(b"(?s)(?=" + re.escape((next_offset >> 32).to_bytes(4, "big")) + b".{12}\x02)")
    while position + HEADER_SIZE <= size:
        chunk = file.read(position, min(_SEARCH_CHUNK, size - position))
        for match in pattern.finditer(chunk):
            at = match.start()
            if at + HEADER_SIZE > len(chunk):
                break
            header = read_header(chunk, at)
            if not header_fits(header, size - position - at) or not next_offset <= header.base_offset < limit:
                continue
            if header.size > _SEARCHED_BATCH_MAX:
                continue
            if crc_is_valid(file.read(position + at, header.size), header):
                return position + at, header
        if len(chunk) <= HEADER_SIZE:
            return None
        position += len(chunk) - HEADER_SIZE + 1
    return None
