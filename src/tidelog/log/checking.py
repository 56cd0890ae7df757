"""Damage in a segment: the way to a batch, and the check of bytes before they leave.

What was appended since the segment was opened, and what recovery looked at, is trusted (`Segment.trusted_from`). All
else is checked when it is first read, and remembered as one interval that grows with whoever reads on; a second reader
elsewhere only pays for another check. The CRC covers neither a batch's offset nor its epoch: the offset is held to the
batches around it and to the index, the epoch to the partition's leader epochs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from tidelog.kernel.errors import TidelogError
from tidelog.kernel.ports import Buffer
from tidelog.log.leader_epochs import LeaderEpochs
from tidelog.log.reading import Read, waiting
from tidelog.log.scan import header_fits, scan_headers
from tidelog.log.segment import Segment
from tidelog.protocol.batch import HEADER_SIZE, BatchHeader, crc_is_valid, read_header

CHECKED_BYTES_MAX: Final = 1 << 20
CHECKED_BATCHES_MAX: Final = 512
"""What one read checks: the rest is cut and asked for again. Small batches cost more than their bytes."""


class Damaged(TidelogError):
    """Something in a segment that is no batch of this log."""

    def __init__(self, segment: Segment, position: int, reason: str) -> None:
        super().__init__(f"{segment.log.path} is damaged at position {position}: {reason}")
        self.segment = segment
        self.position = position


class Place(NamedTuple):
    position: int
    header: BatchHeader
    expected: int
    """The lowest offset that a batch here may have: where the one before it ended."""


# The way to a batch


def locate(segment: Segment, offset: int, read: Read = waiting) -> Place | None:
    """The first batch that ends at or behind the offset; Damaged when the way there does not lead from batch to batch.
    The search starts at an index entry that names the batch which is there, or further back."""
    back = 0
    while True:
        start, last_offset = segment.with_indexes(partial(segment.index.before, offset, back, read)) or (0, None)
        headers = scan_headers(segment.log, start, segment.size, read)
        first = next(headers, None)
        if last_offset is None or (first is not None and first[1].last_offset == last_offset):
            break
        back = back * 2 or 1
    position, expected = start, segment.base_offset
    if first is not None and last_offset is not None:
        expected = first[1].base_offset
    has_gaps = False
    before = None
    found = first
    while found is not None:
        position, header = found
        base_offset = header.base_offset
        if base_offset != expected:
            if base_offset < expected:
                raise _goes_back(segment, position, base_offset, expected)
            has_gaps = True
        next_offset = base_offset + header.last_offset_delta + 1
        if next_offset > offset:
            break
        before, expected = found, next_offset
        found = next(headers, None)
    else:
        position = before[0] + before[1].size if before is not None else start
        if position != segment.size:
            raise _ends(segment, position)
    if found is None or found[1].base_offset > offset:
        _check_missing(segment, offset, before, read)
    if back and not has_gaps:
        # The batches are sound, so it was the index: a power cut may leave entries of batches that were truncated.
        segment.rebuild_indexes()
    return None if found is None else Place(*found, expected)


def _check_missing(segment: Segment, offset: int, before: tuple[int, BatchHeader] | None, read: Read) -> None:
    """No batch has the offset. Did the cleaner take it, or does the batch before tell a shorter run than it has, or the
    file end too early?"""
    end = 0
    if before is not None:
        position, header = before
        end = position + header.size
        if must_check(segment, position, header.size):
            check_length(segment, position, header, read)
            if not crc_is_valid(segment.read_batch(position, header, read), header):
                raise Damaged(segment, position, f"the CRC of the batch at offset {header.base_offset} is wrong")
    if end == segment.size and segment.trusted_from and _indexes_reach(segment, end, offset, read):
        raise Damaged(segment, end, f"the file ends before offset {offset}, its index does not")


def _indexes_reach(segment: Segment, end: int, offset: int, read: Read) -> bool:
    """Whether an index knows of a batch behind the end of the file."""
    if segment.with_indexes(partial(segment.index.last_position, read)) >= end > 0:
        return True
    timestamp, last_offset = segment.with_indexes(partial(segment.time_index.last, read))
    return timestamp >= 0 and last_offset >= offset


def walk(segment: Segment, place: Place, read: Read = waiting) -> Iterator[Place]:
    """The batches from this one on to the end of the segment, or to Damaged."""
    position, _, expected = place
    for at, header in scan_headers(segment.log, position, segment.size, read):
        if header.base_offset < expected:
            raise _goes_back(segment, at, header.base_offset, expected)
        yield Place(at, header, expected)
        position, expected = at + header.size, header.next_offset
    if position != segment.size:
        raise _ends(segment, position)


def _goes_back(segment: Segment, position: int, base_offset: int, expected: int) -> Damaged:
    return Damaged(segment, position, f"a batch at offset {base_offset} where {expected} comes next")


def _ends(segment: Segment, position: int) -> Damaged:
    return Damaged(segment, position, f"no batch, with {segment.size - position} bytes to come")


# The check


def must_check(segment: Segment, position: int, length: int) -> bool:
    if position >= segment.trusted_from:
        return False
    checked_from, checked_to = segment.checked
    return position < checked_from or position + length > checked_to


def check_length(segment: Segment, position: int, header: BatchHeader, read: Read = waiting) -> None:
    """Whether the batch ends where another begins, before so many bytes are read."""
    if not header_fits(header, segment.size - position):
        raise Damaged(segment, position, f"no batch has a length of {header.batch_length} here")
    end = position + header.size
    if position < segment.trusted_from and end < segment.size:
        after = _header_at(segment, end, read)
        if after is None or after.base_offset < header.next_offset:
            raise Damaged(segment, position, f"a batch of {header.size} bytes is followed by none")


def check(segment: Segment, data: Buffer, place: Place, limit: int, epochs: LeaderEpochs, read: Read = waiting) -> int:
    """How many of the bytes, read from the place, are whole batches of this log; Damaged when not even the first is
    one. No offset of the segment reaches the limit."""
    position, expected, at = place.position, place.expected, 0
    view = memoryview(data)
    for _ in range(CHECKED_BATCHES_MAX):
        if at + HEADER_SIZE > len(data) or at >= CHECKED_BYTES_MAX:
            break
        header = read_header(data, at)
        if header_fits(header, segment.size - position - at) and at + header.size > len(data) and at:
            break
        try:
            _check_batch(segment, view[at : at + header.size], position + at, header, expected, limit, epochs)
            if header.base_offset > expected:
                _check_gap(segment, position + at, header, read)
        except Damaged:
            if not at:
                raise
            break
        at += header.size
        expected = header.next_offset
    if not at:
        raise Damaged(segment, position, "the file became shorter")
    _note_checked(segment, position, position + at)
    return at


def check_batch(
    segment: Segment, data: Buffer, place: Place, limit: int, epochs: LeaderEpochs, read: Read = waiting
) -> None:
    """The same for exactly one batch."""
    if must_check(segment, place.position, place.header.size):
        check(segment, data, place, limit, epochs, read)
    elif len(data) != place.header.size:
        raise Damaged(segment, place.position, "the file became shorter")


def _check_batch(
    segment: Segment,
    batch: memoryview,
    position: int,
    header: BatchHeader,
    expected: int,
    limit: int,
    epochs: LeaderEpochs,
) -> None:
    if not header_fits(header, segment.size - position):
        raise Damaged(segment, position, "no batch is here")
    if len(batch) < header.size:
        raise Damaged(segment, position, "the file became shorter")
    if not crc_is_valid(batch, header):
        raise Damaged(segment, position, f"the CRC of the batch at offset {header.base_offset} is wrong")
    if header.base_offset < expected or header.last_offset >= limit:
        raise Damaged(
            segment, position, f"a batch at offset {header.base_offset} where {expected} comes next, below {limit}"
        )
    epoch = epochs.epoch_for_offset(header.last_offset)
    if epoch not in (header.leader_epoch, -1):
        raise Damaged(
            segment, position, f"leader epoch {header.leader_epoch} at offset {header.base_offset}, written in {epoch}"
        )


def _check_gap(segment: Segment, position: int, header: BatchHeader, read: Read) -> None:
    """The cleaner leaves gaps; an offset that became larger leaves one too, but reaches into the next batch."""
    end = position + header.size
    after = _header_at(segment, end, read) if end < segment.size else None
    if after is not None and after.base_offset < header.next_offset:
        raise Damaged(segment, position, f"a batch up to offset {header.last_offset}, and {after.base_offset} follows")


def _header_at(segment: Segment, position: int, read: Read) -> BatchHeader | None:
    found = next(scan_headers(segment.log, position, segment.size, read), None)
    return None if found is None else found[1]


def _note_checked(segment: Segment, start: int, end: int) -> None:
    checked_from, checked_to = segment.checked
    if start <= checked_to and checked_from <= end:
        start, end = min(start, checked_from), max(end, checked_to)
    if end >= segment.trusted_from:
        segment.trusted_from = min(start, segment.trusted_from)
    segment.checked = (start, end)
