"""The reading half of a partition's log: from an offset to bytes that may leave, from a time to an offset.

Changes nothing of the log but what it has learnt of places and damage. It knows segments, never how they came about.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from struct import Struct
from typing import Final, NamedTuple

from tidelog.kernel.ports import FileSlice
from tidelog.log.checking import Damaged, Place, check, check_length, locate, must_check
from tidelog.log.errors import CorruptFileError, LogError
from tidelog.log.leader_epochs import LeaderEpochs
from tidelog.log.reading import Read, waiting
from tidelog.log.recent import RecentPositions
from tidelog.log.segment import Segment
from tidelog.log.timestamps import TimestampOffset, find_max_timestamp, find_timestamp
from tidelog.log.transactions import Transactions
from tidelog.protocol.errors import ErrorCode

_LENGTH: Final = Struct(">i")
_HEAD_BYTES: Final = 12
"""Of a batch: its offset, and how long it is."""
_DAMAGE_TOLD_MAX: Final = 1000
_RECENT_BYTES: Final = 64 * 1024
"""The last batches of the active segment were written a moment ago: so few bytes are read without asking first."""

_LENT_BYTES: Final = 128 * 1024
"""Fewer are read: a copy costs less than what it takes to do without."""

_logger = logging.getLogger(__name__)


class LogRead(NamedTuple):
    data: bytes | memoryview
    segment_base_offset: int
    position: int
    """Where the data starts in its segment."""
    lent: FileSlice | None = None
    """Instead of the data, for who takes it."""


class ReadableLog:
    __slots__ = (
        "_active",
        "_recent",
        "_segments",
        "damaged_batches",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "topic",
        "transactions",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.leader_epochs: LeaderEpochs
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.damaged_batches = 0
        self._segments: list[Segment] = []
        self._active: Segment
        self._recent = RecentPositions()
        self.transactions: Transactions | None = None
        """None while there was no transaction since the log was opened, and none is open or was aborted before."""

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        min_one_batch: bool = True,
        read: Read = waiting,
        lend: bool = False,
    ) -> LogRead:
        """From the batch that holds the offset up to max_bytes, the last batch maybe cut, never behind end_offset (a
        batch boundary). A first batch that is larger is given whole, or not at all without min_one_batch. With `lend`
        many bytes that nobody needs to look at may stay in their file."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            bounds = f"{self.log_start_offset} to {self.log_end_offset} of {self.topic}-{self.partition}"
            raise LogError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not within {bounds}")
        if offset >= end_offset:
            return LogRead(b"", self._active.base_offset, self._active.size)
        try:
            return self._read(offset, max_bytes, end_offset, min_one_batch, read, lend)
        except Damaged as damage:
            raise self._refuse(damage) from None

    def _read(
        self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool, read: Read, lend: bool
    ) -> LogRead:
        segment, place = self._active, None
        position = self._recent.get(offset)
        if position is None:
            segment, place = self._locate(offset, read)
            if place is None:
                return LogRead(b"", segment.base_offset, segment.size)
            position = place.position
        room = self._end_position(segment, end_offset, position, read) - position
        if room <= 0:
            return LogRead(b"", segment.base_offset, position)
        length = max_bytes if max_bytes < room else room
        if place is None and length <= _RECENT_BYTES:
            read = waiting
        if lend and length >= _LENT_BYTES and (lent := _lend(segment, position, length, place, read)) is not None:
            return LogRead(b"", segment.base_offset, position, lent)
        data = read(segment.log, position, length if length > _HEAD_BYTES else _HEAD_BYTES)
        if len(data) >= _HEAD_BYTES:
            first_size: int = _LENGTH.unpack_from(data, 8)[0] + _HEAD_BYTES
            if first_size > room:
                raise Damaged(segment, position, f"no batch of {first_size} bytes fits here")
            if first_size > length:
                if not min_one_batch:
                    return LogRead(b"", segment.base_offset, position)
                if place is not None:
                    check_length(segment, position, place.header, read)
                length = first_size
                data = read(segment.log, position, length)
        if len(data) < length or (place is not None and must_check(segment, position, len(data))):
            place = place or self._locate(offset, read)[1]
            if place is not None:
                data = data[: check(segment, data, place, self._limit(segment), self.leader_epochs, read)]
        return LogRead(data, segment.base_offset, position)

    def _refuse(self, damage: Damaged) -> LogError:
        """Kafka's error for it; told once for each place, however many readers come by."""
        segment = damage.segment
        if segment.damaged is None:
            segment.damaged = set()
        if damage.position not in segment.damaged and len(segment.damaged) < _DAMAGE_TOLD_MAX:
            segment.damaged.add(damage.position)
            self.damaged_batches += 1
            _logger.error("%s", damage)
        return LogError(ErrorCode.CORRUPT_MESSAGE, str(damage))

    def _locate(self, offset: int, read: Read) -> tuple[Segment, Place | None]:
        """The segment and place of the first batch that ends at or behind the offset."""
        for segment in self._segments[self._segment_number(offset) :]:
            place = locate(segment, offset, read)
            if place is not None:
                return segment, place
        return self._active, None

    def _end_position(self, segment: Segment, end_offset: int, position: int, read: Read) -> int:
        """Where the readable part of the segment ends: it reaches at least behind the batch at the position."""
        if segment is self._active:
            if end_offset >= self.log_end_offset:
                return segment.size
            end = self._recent.get(end_offset)
            if end is not None:
                return end
        elif end_offset >= self._limit(segment):
            return segment.size
        try:
            place = locate(segment, end_offset, read)
        except Damaged as damage:
            if damage.position <= position:
                raise
            return damage.position
        if place is None:
            return segment.size
        if segment is self._active and place.position >= segment.trusted_from:
            # Asked for again by every reader until the next sync round, and then by each as where it reads on.
            self._recent.note(end_offset, place.position)
        return place.position

    def _limit(self, segment: Segment) -> int:
        """No batch of the segment reaches this offset."""
        if segment is self._active:
            return self.log_end_offset
        return self._segments[self._segment_number(segment.base_offset) + 1].base_offset

    def _segment_number(self, offset: int) -> int:
        return max(0, bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1)

    def aborted_between(self, offset: int, end_offset: int, read: Read = waiting) -> list[tuple[int, int]]:
        """(producer, first offset) of the aborted transactions that a reader of these offsets must know of, in the
        order of their markers."""
        found: list[tuple[int, int]] = []
        transactions = self.transactions
        if transactions is None or transactions.last_aborted < offset or offset >= end_offset:
            return found
        for segment in self._segments[self._segment_number(offset) :]:
            try:
                if segment.aborted is not None and segment.aborted.collect(offset, end_offset, found, read):
                    break
            except CorruptFileError as error:
                # Without it the reader would take aborted records for good ones.
                raise LogError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None
        return found

    def offset_for_timestamp(
        self, timestamp_ms: int, *, end_offset: int, read: Read = waiting
    ) -> TimestampOffset | None:
        """The first record with this timestamp or a later one, before end_offset."""
        try:
            return find_timestamp(
                self._segments, timestamp_ms, self.log_start_offset, end_offset, self.leader_epochs, read
            )
        except Damaged as damage:
            raise self._refuse(damage) from None

    def max_timestamp_offset(self, read: Read = waiting) -> TimestampOffset | None:
        """The first record with the largest timestamp of all."""
        try:
            return find_max_timestamp(self._segments, self.leader_epochs, read)
        except Damaged as damage:
            raise self._refuse(damage) from None


def _lend(segment: Segment, position: int, length: int, place: Place | None, read: Read) -> FileSlice | None:
    """None where something is to be looked at first, or the first batch is larger."""
    if must_check(segment, position, length):
        return None
    if place is not None:
        first_size = place.header.size
    else:
        head = read(segment.log, position, _HEAD_BYTES)
        first_size = _LENGTH.unpack_from(head, 8)[0] + _HEAD_BYTES if len(head) == _HEAD_BYTES else length + 1
    return segment.log.lend(position, length) if first_size <= length else None
