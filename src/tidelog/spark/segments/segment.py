"""One open .log file: where an offset is in it, and pieces of whole batches. It may be renamed, removed, truncated or
appended to meanwhile: nothing that is read is believed before its batches were checked."""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from tidelog.kernel.errors import ProtocolError
from tidelog.log.index import OFFSET_ENTRY
from tidelog.log.names import INDEX, LOG, segment_name
from tidelog.protocol.batch import HEADER_SIZE, LOG_OVERHEAD
from tidelog.protocol.records import Batches, scan
from tidelog.spark.segments.folder import Folder, Gap

_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8
_BATCH_BYTES_MAX: Final = 1 << 28
"""A longer one is taken for damage, or left to the broker."""
_NO_OFFSET: Final = 1 << 31
_SEEK_BYTES: Final = 64 * 1024


class Room:
    """Where pieces lie, one after the other in the same memory."""

    def __init__(self, size: int) -> None:
        self.memory = memoryview(bytearray(max(size, HEADER_SIZE)))

    def grow(self, size: int) -> None:
        self.memory = memoryview(bytearray(size))


class Piece(NamedTuple):
    """Whole batches, not looked into. Their bytes are there until the next piece is read into the same room."""

    data: memoryview
    batches: Batches

    @property
    def base_offset(self) -> int:
        return int(self.batches.base_offset[0])

    @property
    def next_offset(self) -> int:
        last = self.batches.count - 1
        return int(self.batches.base_offset[last]) + int(self.batches.last_offset_delta[last]) + 1

    def part(self, first: int, end: int, *, check_crc: bool) -> Piece:
        """The batches from one number to before another. ProtocolError when a CRC is wrong."""
        position = self.batches.position
        start = int(position[first]) if first < self.batches.count else len(self.data)
        stop = int(position[end]) if end < self.batches.count else len(self.data)
        data = self.data[start:stop]
        if not check_crc and (first, end) == (0, self.batches.count):
            return self
        return Piece(data, scan(data, check_crc=check_crc))


class Segment:
    def __init__(self, folder: Folder, base_offset: int) -> None:
        """OSError when it is not there."""
        self._folder = folder
        self._name = segment_name(base_offset, LOG)
        self.base_offset = base_offset
        self._file = folder.open(self._name)

    def close(self) -> None:
        self._file.close()

    @property
    def path(self) -> str:
        return f"{self._folder.path}/{self._name}"

    def is_current(self) -> bool:
        """Whether the name still means this file: the cleaner has not put another in its place, nor was it removed."""
        return self._folder.inode(self._name) == self._file.inode

    def piece(self, position: int, room: Room, size: int) -> Piece | None:
        """Whole batches from the position on, of about so many bytes, at least one; None where the file has none (yet).
        Only their headers were looked at. Gap for what is no batch."""
        while True:
            data = room.memory[: max(size, HEADER_SIZE)]
            count = self._file.read_into(data, position)
            data = data[:count]
            try:
                batches = scan(data, check_crc=False)
            except ProtocolError as error:
                raise Gap(f"{self.path} at byte {position}: {error}") from None
            if batches.count:
                last = batches.count - 1
                used = int(batches.position[last]) + int(batches.batch_length[last]) + LOG_OVERHEAD
                self._file.will_need(position + used, size)
                return Piece(data[:used].toreadonly(), batches)
            if count < HEADER_SIZE or count < len(room.memory[:size]):
                return None
            size = _LENGTH.unpack_from(data, _LENGTH_AT)[0] + LOG_OVERHEAD
            if size > _BATCH_BYTES_MAX:
                raise Gap(f"{self.path} at byte {position}: a batch of {size} bytes")
            if size > len(room.memory):
                room.grow(size)

    def seek(self, offset: int, room: Room) -> int | None:
        """The position of the first batch that ends at the offset or behind it; None when there is none (yet)."""
        position, is_hint = self._hint(offset), True
        while True:
            try:
                piece = self.piece(position, room, _SEEK_BYTES)
                is_wrong = is_hint and position > 0 and (piece is None or piece.base_offset > offset)
            except Gap:
                if not is_hint or position == 0:
                    raise
                is_wrong = True
            if is_wrong:
                # An index that a crash left behind may have entries of batches that were truncated.
                position, is_hint = 0, False
                continue
            if piece is None:
                return None
            found = int(np.argmax(last_offsets(piece.batches) >= offset))
            if last_offsets(piece.batches)[found] >= offset:
                return position + int(piece.batches.position[found])
            position += len(piece.data)
            is_hint = False

    def _hint(self, offset: int) -> int:
        """A position before the offset's batch, the nearest that the index knows; 0 without one."""
        try:
            index = self._folder.open(segment_name(self.base_offset, INDEX))
        except OSError:
            return 0
        step = OFFSET_ENTRY.size

        def entry(number: int) -> tuple[int, ...]:
            data = index.read(number * step, step)
            return OFFSET_ENTRY.unpack(data) if len(data) == step else (0, 0)

        def key(number: int) -> int:
            # The index of Apache's active segment ends in zeros: room for what comes.
            relative = entry(number)[0]
            return relative if relative > 0 or number == 0 else _NO_OFFSET

        try:
            number = bisect_right(range(index.size() // step), offset - self.base_offset, key=key)
            return max(0, entry(number - 1)[1]) if number else 0
        finally:
            index.close()


def last_offsets(batches: Batches) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Of each batch."""
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = np.asarray(batches.base_offset) + np.asarray(
        batches.last_offset_delta
    )
    return found
