"""The batches of a segment that is to be cleaned, some at a time, each looked at before it is believed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Disk
from tidelog.log.cleaning.errors import UncleanableError
from tidelog.log.cleaning.order import Source
from tidelog.log.names import LOG, TXN_INDEX, segment_name
from tidelog.log.scan import header_fits
from tidelog.log.txn_index import ABORTED_ENTRY, Aborted
from tidelog.protocol.batch import HEADER_SIZE, BatchHeader, crc_is_valid, read_header
from tidelog.protocol.records import Columns, TwinName, decode

CHUNK_BYTES: Final = 1 << 20
_DECODED_BYTES: Final = 1 << 29


class FoundBatch(NamedTuple):
    header: BatchHeader
    data: memoryview
    is_last: bool
    """Of the segment."""


class Chunk(NamedTuple):
    """Batches that lie one behind the other, and their records."""

    batches: list[FoundBatch]
    columns: Columns

    @property
    def size(self) -> int:
        return sum(batch.header.size for batch in self.batches)


def read_source(disk: Disk, directory: str, source: Source, twin: TwinName | None = None) -> Iterator[Chunk]:
    """All batches, about a megabyte of them at a time. UncleanableError when one is damaged."""
    path = f"{directory}/{segment_name(source.base_offset, LOG)}"
    file = disk.open(path)
    position, due = 0, source.base_offset
    try:
        while position < source.size:
            chunk = file.read(position, min(CHUNK_BYTES, source.size - position))
            if len(chunk) >= HEADER_SIZE and (first := read_header(chunk)).size > len(chunk):
                # Larger than a chunk: all of it, if it can be a batch at all.
                if not header_fits(first, source.size - position):
                    raise UncleanableError(f"{path} is damaged at position {position}")
                chunk = file.read(position, first.size)
            if not chunk:
                raise UncleanableError(f"{path} became shorter")
            found, used = _whole_batches(chunk, position, due, source, path)
            yield from _decoded(found, memoryview(chunk)[:used], twin)
            position, due = position + used, found[-1].header.next_offset
    finally:
        file.close()


def _decoded(batches: list[FoundBatch], data: memoryview, twin: TwinName | None) -> Iterator[Chunk]:
    """In one, or in parts where all at once take too much room: a kilobyte of zstd can be a gigabyte."""
    try:
        yield Chunk(batches, decode(data, limit_bytes=_DECODED_BYTES, check_crc=False, twin=twin))
    except ProtocolError:
        if len(batches) == 1:
            raise
        half = len(batches) // 2
        size = sum(batch.header.size for batch in batches[:half])
        yield from _decoded(batches[:half], data[:size], twin)
        yield from _decoded(batches[half:], data[size:], twin)


def _whole_batches(chunk: bytes, position: int, due: int, source: Source, path: str) -> tuple[list[FoundBatch], int]:
    found: list[FoundBatch] = []
    view, at = memoryview(chunk), 0
    is_end = position + len(chunk) >= source.size
    while at < len(chunk):
        header = read_header(chunk, at) if at + HEADER_SIZE <= len(chunk) else None
        fits = header is not None and header_fits(header, source.size - position - at)
        if found and not is_end and (header is None or (fits and at + header.size > len(chunk))):
            break  # the rest of it comes with the next chunk
        if header is None or not fits or not _is_sound(view[at : at + header.size], header, due, source.end_offset):
            raise UncleanableError(f"{path} is damaged at position {position + at}")
        at += header.size
        found.append(FoundBatch(header, view[at - header.size : at], position + at == source.size))
        due = header.next_offset
    return found, at


def _is_sound(batch: memoryview, header: BatchHeader, due: int, end_offset: int) -> bool:
    in_order = due <= header.base_offset and header.last_offset < end_offset
    return in_order and len(batch) == header.size and crc_is_valid(batch, header)


def read_aborted(disk: Disk, directory: str, source: Source) -> list[Aborted]:
    """The aborted transactions whose marker is in the segment."""
    if not source.has_aborted:
        return []
    path = f"{directory}/{segment_name(source.base_offset, TXN_INDEX)}"
    data = disk.read_file(path)
    if data is None or len(data) % ABORTED_ENTRY.size:
        raise UncleanableError(f"{path} is missing or damaged")
    return [Aborted._make(fields[1:]) for fields in ABORTED_ENTRY.iter_unpack(data)]
