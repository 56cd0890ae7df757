"""decode: the bytes of a log to columns. The steps are the same for both twins; these do the loops.

Any bytes decode or raise ProtocolError. Headers are checked first, then the CRCs, then what is compressed is
decompressed within one limit for the whole call, then the records are walked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from crc32c import crc32c

from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Buffer
from tidelog.protocol.batch import ATTRIBUTES_OFFSET, CODEC_MASK, LOG_OVERHEAD
from tidelog.protocol.compression import Codec, decompress
from tidelog.protocol.records.columns import Batches, Columns, TwinName
from tidelog.protocol.records.faults import BAD_COUNT, fault
from tidelog.protocol.records.twins import chosen_twin, module

DECODE_LIMIT_BYTES: Final = 1 << 28
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, time, offset, two sizes and the number of headers, a byte each."""
RECORD_COLUMN_BYTES: Final = 88
HEADER_COLUMN_BYTES: Final = 32
"""What the columns take for each."""


def decode(
    data: Buffer, *, limit_bytes: int = DECODE_LIMIT_BYTES, check_crc: bool = True, twin: TwinName | None = None
) -> Columns:
    """Every whole batch at the start of data; a part of one at the end is left, and Columns.consumed says where.

    limit_bytes bounds what all compressed batches together may take: their records when they are decompressed, and the
    columns of these. What is not compressed takes at most 16 times its own size.
    """
    name = twin or chosen_twin()
    loops = module("decode", name)
    view = _flat(data)
    consumed, batches = loops.scan(view)
    if check_crc:
        _check_crcs(view, batches)
    payloads: Buffer = data
    headers_max = len(view)
    if any(attributes & CODEC_MASK for attributes in batches.attributes.tolist()):
        payloads, batches, left = _decompressed(view, batches, limit_bytes, loops)
        headers_max += left // HEADER_COLUMN_BYTES
    found = loops.walk(_flat(payloads), batches, headers_max)
    return Columns(twin=name, consumed=consumed, data=payloads, batches=batches, **found)


def _flat(data: Buffer) -> memoryview:
    view = memoryview(data)
    return view if view.format == "B" and view.ndim == 1 and view.c_contiguous else view.cast("B")


def _check_crcs(view: memoryview, batches: Batches) -> None:
    positions, lengths, crcs = batches.position.tolist(), batches.batch_length.tolist(), batches.crc.tolist()
    for position, length, crc in zip(positions, lengths, crcs, strict=True):
        if crc32c(view[position + ATTRIBUTES_OFFSET : position + LOG_OVERHEAD + length]) != crc:
            raise ProtocolError(f"the CRC of the batch at byte {position} is wrong")


def _decompressed(view: memoryview, batches: Batches, limit_bytes: int, loops: Any) -> tuple[bytes, Batches, int]:
    """The records of all batches one behind the other, the batches with their places there, what the limit leaves."""
    parts: list[Buffer] = []
    starts: list[int] = []
    ends: list[int] = []
    position = 0
    left = limit_bytes
    columns = (batches.payload_start, batches.payload_end, batches.attributes, batches.record_count)
    for start, end, attributes, count in zip(*(column.tolist() for column in columns), strict=True):
        part: Buffer = view[start:end]
        codec = attributes & CODEC_MASK
        if codec:
            part = _decompress(codec, part, left, limit_bytes)
        # Before anything is allocated for so many.
        if count * RECORD_BYTES_MIN > len(part):
            raise fault(BAD_COUNT, f"{count} records in {len(part)} bytes")
        if codec:
            left -= len(part) + count * RECORD_COLUMN_BYTES
        if left < 0:
            raise ProtocolError(f"the compressed batches take more than {limit_bytes} bytes, columns included")
        parts.append(part)
        starts.append(position)
        position += len(part)
        ends.append(position)
    placed = replace(batches, payload_start=loops.column(starts), payload_end=loops.column(ends))
    return b"".join(parts), placed, left


def _decompress(codec: int, part: Buffer, left: int, limit_bytes: int) -> Buffer:
    if codec > Codec.ZSTD:
        raise ProtocolError(f"compression {codec} is unknown")
    try:
        return decompress(codec, part, left)
    except ProtocolError as error:
        if left < limit_bytes:
            raise ProtocolError(
                f"{error}; the batches before it took {limit_bytes - left} of {limit_bytes} bytes"
            ) from None
        raise
