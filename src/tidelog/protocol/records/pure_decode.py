"""The decoder's loops in plain Python: what runs without numba, and what the native loops are held against."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Final

from tidelog.protocol.batch import APPEND_TIME, ATTRIBUTES_OFFSET, CODEC_MASK, HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC
from tidelog.protocol.crc import crc32c
from tidelog.protocol.records.columns import BATCH_FIELDS, Batches
from tidelog.protocol.records.faults import (
    BAD_COUNT,
    BAD_HEADER_COUNT,
    BAD_LAST_OFFSET,
    BAD_MAGIC,
    BAD_OFFSET,
    BAD_SIZE,
    BAD_TIMESTAMP,
    BATCH_TOO_SMALL,
    DOES_NOT_FIT,
    LEFT_OVER,
    NO_NAME,
    RUNS_OVER,
    TOO_MANY_HEADERS,
    VARINT_TOO_LONG,
    fault,
)

_RECORD_BYTES_MIN: Final = 7
_OFFSET_MAX: Final = 2**63 - 1
_FIELDS: Final = (
    "offset",
    "timestamp",
    "start",
    "end",
    "key_start",
    "key_size",
    "value_start",
    "value_size",
    "header_first",
)
_HEADER_FIELDS: Final = ("header_key_start", "header_key_size", "header_value_start", "header_value_size")
# A list entry is five times as large as a column's: rows go over to their columns every so often.
_ROWS_AT_ONCE: Final = 4096


def column(values: Iterable[int]) -> array[int]:
    return array("q", values)


def scan(view: memoryview) -> tuple[int, Batches]:
    """(bytes in whole batches, their headers)."""
    rows: list[int] = []
    position, size = 0, len(view)
    while size - position >= HEADER_SIZE:
        fields = HEADER.unpack_from(view, position)
        length = fields[1]
        if length < HEADER_SIZE - LOG_OVERHEAD:
            raise fault(BATCH_TOO_SMALL, f"{length} bytes at byte {position}")
        end = position + LOG_OVERHEAD + length
        if end > size:
            break
        _check_header(fields, position, length + LOG_OVERHEAD - HEADER_SIZE)
        rows += (position, *fields, position + HEADER_SIZE, end)
        position = end
    columns = {name: column(rows[index :: len(BATCH_FIELDS)]) for index, name in enumerate(BATCH_FIELDS)}
    first_record = column(accumulate(columns["record_count"], initial=0))
    return position, Batches(**columns, first_record=first_record)


def wrong_crc(view: memoryview, batches: Batches) -> int:
    """The first batch whose CRC is not what its header says, -1 when there is none."""
    columns = (batches.position, batches.batch_length, batches.crc)
    for row, (position, length, crc) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        if crc32c(view[position + ATTRIBUTES_OFFSET : position + LOG_OVERHEAD + length]) != crc:
            return row
    return -1


def select(batches: Batches, rows: Sequence[int]) -> Batches:
    """Only these, in their order."""
    columns = {name: column([getattr(batches, name)[row] for row in rows]) for name in BATCH_FIELDS}
    return Batches(**columns, first_record=column(accumulate(columns["record_count"], initial=0)))


def _check_header(fields: tuple[int, ...], position: int, payload_bytes: int) -> None:
    base_offset, magic, attributes, last_offset_delta, count = fields[0], fields[3], fields[5], fields[6], fields[12]
    where = f"at byte {position}"
    if magic != MAGIC:
        raise fault(BAD_MAGIC, f"{magic} {where}")
    # What a compressed batch has room for is known later.
    if count < 0 or (not attributes & CODEC_MASK and count * _RECORD_BYTES_MIN > payload_bytes):
        raise fault(BAD_COUNT, f"{count} in {payload_bytes} bytes {where}")
    if last_offset_delta < 0 or base_offset > _OFFSET_MAX - last_offset_delta:
        raise fault(BAD_LAST_OFFSET, where)


class _Rows:
    """Records and headers as they are read, flat, until they go over to their columns."""

    __slots__ = ("columns", "headers", "headers_left", "rows")

    def __init__(self, headers_max: int) -> None:
        self.columns = {name: array("q") for name in (*_FIELDS, *_HEADER_FIELDS, "batch")}
        self.rows: list[int] = []
        self.headers: list[int] = []
        self.headers_left = headers_max

    def move(self) -> None:
        """To the columns. The numbers of headers in rows count from the last move."""
        moved = len(self.columns["header_key_start"])
        try:
            for index, name in enumerate(_FIELDS[:-1]):
                self.columns[name].extend(array("q", self.rows[index :: len(_FIELDS)]))
        except OverflowError:
            raise fault(BAD_TIMESTAMP, "a delta too far") from None
        firsts = self.rows[len(_FIELDS) - 1 :: len(_FIELDS)]
        self.columns["header_first"].extend(array("q", [moved + first // 4 for first in firsts]))
        for index, name in enumerate(_HEADER_FIELDS):
            self.columns[name].extend(array("q", self.headers[index::4]))
        self.rows.clear()
        self.headers.clear()


def walk(view: memoryview, batches: Batches, headers_max: int) -> dict[str, array[int]]:
    """The columns of all records; view holds them where the batches' payload columns say."""
    out = _Rows(headers_max)
    data = bytes(view)  # reading bytes one by one is faster than reading a view
    for index in range(batches.count):
        position, stop = batches.payload_start[index], batches.payload_end[index]
        left = batches.record_count[index]
        out.columns["batch"].extend(array("q", (index,)) * left)
        while left:
            count = min(left, _ROWS_AT_ONCE)
            left -= count
            try:
                position = _walk_batch(data, batches, index, position, count, out)
            except IndexError:
                raise fault(RUNS_OVER, f"in the last of {batches.count} batches") from None
            if len(out.rows) >= _ROWS_AT_ONCE * len(_FIELDS):
                out.move()
        if position != stop:
            raise fault(LEFT_OVER, f"{stop - position} bytes")
    out.move()
    out.columns["header_first"].append(len(out.columns["header_key_start"]))
    return out.columns


def _walk_batch(data: bytes, batches: Batches, index: int, position: int, count: int, out: _Rows) -> int:
    """So many records from position on; the position after them.

    Positions only grow, so a field that runs over the end of its record is found where the record should end, or by
    IndexError. Numbers of one byte, and lengths of two, are read in place: a call costs as much as the rest."""
    stop = batches.payload_end[index]
    base_offset, last_delta = batches.base_offset[index], batches.last_offset_delta[index]
    base_time, max_time = batches.base_timestamp[index], batches.max_timestamp[index]
    own_time = not batches.attributes[index] & APPEND_TIME
    rows, headers = out.rows, out.headers
    for _ in range(count):
        start = position
        length = data[position]
        position += 1
        if length >= 0x80:
            second = data[position]
            if second < 0x80:
                length += (second << 7) - 0x80
                position += 1
            else:
                length, position = _read(data, position - 1)
        end = position + (length >> 1)
        if length & 1 or end > stop:
            raise fault(RUNS_OVER, f"at byte {start}")
        time = data[position + 1]
        position += 2
        if time >= 0x80:
            time, position = _read(data, position - 1)
        delta = data[position]
        position += 1
        if delta >= 0x80:
            delta, position = _read(data, position - 1)
        if delta & 1 or delta >> 1 > last_delta:
            raise fault(BAD_OFFSET, f"at byte {start}")
        key_size = data[position]
        key_start = position = position + 1
        if key_size & 1 or key_size >= 0x80:
            key_size, key_start = _size(data, position - 1)
            position = key_start + (key_size if key_size > 0 else 0)
        else:
            key_size >>= 1
            position += key_size
        value_size, value_start = _size(data, position)
        position = value_start + (value_size if value_size > 0 else 0)
        header_count = data[position]
        position += 1
        offset = base_offset + (delta >> 1)
        timestamp = base_time + ((time >> 1) ^ -(time & 1)) if own_time else max_time
        rows += (offset, timestamp, start, end, key_start, key_size, value_start, value_size, len(headers))
        if header_count:
            position = _walk_headers(data, position - 1, end, out)
        if position != end:
            raise fault(DOES_NOT_FIT, f"at byte {start}")
    return position


def _walk_headers(data: bytes, position: int, end: int, out: _Rows) -> int:
    raw, position = _read(data, position)
    count = raw >> 1
    if raw & 1 or count > (end - position) >> 1:
        raise fault(BAD_HEADER_COUNT, f"{(raw >> 1) ^ -(raw & 1)} in {end - position} bytes")
    out.headers_left -= count
    if out.headers_left < 0:
        raise fault(TOO_MANY_HEADERS, f"{-out.headers_left} too many")
    headers = out.headers
    for _ in range(count):
        key_size, key_start = _size(data, position)
        if key_size < 0:
            raise fault(NO_NAME, f"at byte {position}")
        value_size, position = _size(data, key_start + key_size)
        headers += (key_start, key_size, position, value_size)
        if value_size > 0:
            position += value_size
    return position


def _size(data: bytes, position: int) -> tuple[int, int]:
    """(a size, position after it); -1 is null, less is wrong."""
    raw = data[position]
    position += 1
    if raw >= 0x80:
        second = data[position]
        if second < 0x80:
            raw += (second << 7) - 0x80
            position += 1
        else:
            raw, position = _read(data, position - 1)
    if not raw & 1:
        return raw >> 1, position
    if raw != 1:
        raise fault(BAD_SIZE, f"at byte {position}")
    return -1, position


def _read(data: bytes, position: int) -> tuple[int, int]:
    """(an unsigned number of at most 64 bits in groups of seven, position after it). Most have one or two."""
    first = data[position]
    if first < 0x80:
        return first, position + 1
    second = data[position + 1]
    if second < 0x80:
        return first + (second << 7) - 0x80, position + 2
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        if shift == 63 and byte > 1:
            raise fault(VARINT_TOO_LONG, f"at byte {position}")
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, position
        shift += 7


def ends(lengths: Iterable[int]) -> array[int]:
    """0 and the sum of the lengths up to each."""
    return array("q", accumulate(lengths, initial=0))


def places(bounds: memoryview, shift: int, nulls: Iterable[int]) -> tuple[array[int], array[int]]:
    """(starts, sizes) of values that lie between bounds, moved by shift."""
    starts = array("q", [start + shift for start in bounds[:-1]])
    sizes = array("q", [end - start for start, end in pairwise(bounds)])
    for row in nulls:
        sizes[row] = -1
    return starts, sizes
