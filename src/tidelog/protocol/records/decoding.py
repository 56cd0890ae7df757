"""decode: the bytes of a log to columns; scan: only the headers of its batches. The steps are the same for both twins;
these do the loops.

Any bytes decode or raise ProtocolError. Headers are checked first, then the CRCs, then what is compressed is
decompressed within one limit for the whole call, then the records are walked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Buffer
from tidelog.protocol.batch import CODEC_MASK
from tidelog.protocol.compression import decompress_into
from tidelog.protocol.records.columns import Batches, Columns, TwinName
from tidelog.protocol.records.faults import BAD_COUNT, fault
from tidelog.protocol.records.scratch import Scratch
from tidelog.protocol.records.twins import chosen_twin, module

DECODE_LIMIT_BYTES: Final = 1 << 28
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, time, offset, two sizes and the number of headers, a byte each."""
RECORD_COLUMN_BYTES: Final = 88
HEADER_COLUMN_BYTES: Final = 32
"""What the columns take for each."""
_FIRST_GUESS: Final = 64 * 1024


def decode(
    data: Buffer, *, limit_bytes: int = DECODE_LIMIT_BYTES, check_crc: bool = True, twin: TwinName | None = None
) -> Columns:
    """Every whole batch at the start of data; a part of one at the end is left, and Columns.consumed says where.

    limit_bytes bounds what all compressed batches together may take: their records when they are decompressed, and the
    columns of these. What is not compressed takes at most 16 times its own size.
    """
    consumed, batches = _scanned(data, check_crc, twin)
    return decode_scanned(data, batches, limit_bytes=limit_bytes, twin=twin, consumed=consumed)


def scan(data: Buffer, *, check_crc: bool = True, twin: TwinName | None = None) -> Batches:
    """Only the headers of every whole batch at the start of data: for those who count. Payloads, which are not looked
    at, may still be compressed."""
    return _scanned(data, check_crc, twin)[1]


def _scanned(data: Buffer, check_crc: bool, twin: TwinName | None) -> tuple[int, Batches]:
    """(bytes in whole batches, their headers)."""
    loops = module("decode", twin or chosen_twin())
    view = _flat(data)
    consumed, batches = loops.scan(view)
    if check_crc and (wrong := loops.wrong_crc(view, batches)) >= 0:
        raise ProtocolError(f"the CRC of the batch at byte {batches.position[wrong]} is wrong")
    return consumed, batches


def decode_scanned(
    data: Buffer,
    batches: Batches,
    *,
    limit_bytes: int = DECODE_LIMIT_BYTES,
    twin: TwinName | None = None,
    scratch: Scratch | None = None,
    consumed: int | None = None,
) -> Columns:
    """The records of batches that scan has found in data, be it only of some. What was compressed lies in the scratch
    room, if that is given: until it is used again."""
    name = twin or chosen_twin()
    loops = module("decode", name)
    view = _flat(data)
    payloads: Buffer = data
    headers_max = len(view)
    if any(attributes & CODEC_MASK for attributes in batches.attributes.tolist()):
        payloads, batches, left = _decompressed(view, batches, limit_bytes, loops, scratch or Scratch())
        headers_max += left // HEADER_COLUMN_BYTES
    found = loops.walk(_flat(payloads), batches, headers_max)
    return Columns(
        twin=name, consumed=len(view) if consumed is None else consumed, data=payloads, batches=batches, **found
    )


def _flat(data: Buffer) -> memoryview:
    view = memoryview(data)
    return view if view.format == "B" and view.ndim == 1 and view.c_contiguous else view.cast("B")


def _decompressed(
    view: memoryview, batches: Batches, limit_bytes: int, loops: Any, scratch: Scratch
) -> tuple[memoryview, Batches, int]:
    """The records of all batches one behind the other, the batches with their places there, what the limit leaves."""
    starts: list[int] = []
    ends: list[int] = []
    position = 0
    left = limit_bytes
    scratch.room(0, min(4 * len(view), limit_bytes) + 1)
    columns = (batches.payload_start, batches.payload_end, batches.attributes, batches.record_count)
    for start, end, attributes, count in zip(*(column.tolist() for column in columns), strict=True):
        part = view[start:end]
        codec = attributes & CODEC_MASK
        if codec:
            size = _decompress(codec, part, scratch, position, left, limit_bytes)
        else:
            size = len(part)
            scratch.room(position, size)[:size] = part
        # Before anything is allocated for so many.
        if count * RECORD_BYTES_MIN > size:
            raise fault(BAD_COUNT, f"{count} records in {size} bytes")
        if codec:
            left -= size + count * RECORD_COLUMN_BYTES
        if left < 0:
            raise ProtocolError(f"the compressed batches take more than {limit_bytes} bytes, columns included")
        starts.append(position)
        position += size
        ends.append(position)
    placed = replace(batches, payload_start=loops.column(starts), payload_end=loops.column(ends))
    return scratch.filled(position), placed, left


def _decompress(codec: int, part: memoryview, scratch: Scratch, position: int, left: int, limit_bytes: int) -> int:
    """To the position of the scratch room; its size, no more than is left of the limit."""
    try:
        guess = min(max(_FIRST_GUESS, 4 * len(part)), left)
        while True:
            # One byte more than may be: who fills it is too large.
            target = scratch.room(position, guess + 1)[: left + 1]
            size = decompress_into(codec, part, target)
            if size is not None:
                return size
            if len(target) > left:
                raise ProtocolError(f"a batch is damaged, or larger than {left} bytes when decompressed")
            guess = min(4 * len(target), left)
    except ProtocolError as error:
        if left < limit_bytes:
            raise ProtocolError(
                f"{error}; the batches before it took {limit_bytes - left} of {limit_bytes} bytes"
            ) from None
        raise
