"""From an offset on through a partition's segments, piece by piece. The directory is looked at anew for each segment:
files come, go and are put in the place of others while it walks."""

from __future__ import annotations

from typing import Final

import numpy as np

from tidelog.kernel.errors import ProtocolError
from tidelog.spark.segments.folder import Folder, Gap, floor, following
from tidelog.spark.segments.segment import Piece, Room, Segment, last_offsets

_TRIES: Final = 5
_NEVER: Final = 2**63 - 1


class Walk:
    def __init__(self, folder: Folder, piece_bytes: int, *, check_crc: bool = True) -> None:
        self.folder = folder
        self._piece_bytes = piece_bytes
        self._check_crc = check_crc
        self._room = Room(piece_bytes)
        self._offset = -1
        self._position = 0
        self._lowest = 0
        """No batch from the position on has a lower base offset."""
        self._limit = _NEVER
        """No batch of the segment reaches it."""
        self.segment: Segment | None = None

    def close(self) -> None:
        if self.segment is not None:
            self.segment.close()
            self.segment = None

    def next(self, offset: int, end: int = _NEVER) -> Piece | None:
        """The batches from the one that holds the offset, or the next behind it, on; only those that begin before the
        end. None when none does. Gap where the files have a hole, or something that is no batch of this log."""
        if offset != self._offset:
            self.close()
        if self.segment is not None:
            piece = self._read(self.segment, end)
            if piece is not None:
                return piece if piece.batches.count else None
            # The end of the file. What follows is in another, or in one that took this one's place.
            self.close()
        piece = self._read(self._open(offset), end)
        if piece is None:
            raise Gap(f"{self.folder.path}: a segment became shorter at offset {offset}")
        return piece if piece.batches.count else None

    def _open(self, offset: int) -> Segment:
        for _ in range(_TRIES):
            try:
                bases = self.folder.bases()
                base = floor(bases, offset)
                if base is None:
                    first = bases[0] if bases else None
                    raise Gap(f"{self.folder.path}: no segment has offset {offset}", first)
                segment = Segment(self.folder, base)
            except FileNotFoundError:
                continue  # renamed between the two
            except OSError as error:
                raise Gap(f"{self.folder.path}: {error}") from None
            after = following(bases, base)
            self._limit = _NEVER if after is None else after
            try:
                position = segment.seek(offset, self._room)
                if position is None:
                    raise Gap(f"{segment.path} ends before offset {offset}")
            except Gap as gap:
                segment.close()
                raise Gap(str(gap), after) from None
            self.segment = segment
            self._position, self._offset, self._lowest = position, offset, base
            return segment
        raise Gap(f"{self.folder.path}: its segments vanish while they are opened")

    def _read(self, segment: Segment, end: int) -> Piece | None:
        """An empty piece when all is behind the end."""
        start = self._position
        try:
            piece = segment.piece(start, self._room, self._piece_bytes)
            if piece is None:
                return None
            count = int(np.searchsorted(np.asarray(piece.batches.base_offset), end))
            self._check_order(piece, count, segment)
            kept = piece.part(0, count, check_crc=self._check_crc)
        except ProtocolError as error:
            raise Gap(f"{segment.path} from byte {start} on: {error}", self._until()) from None
        except Gap as gap:
            raise Gap(str(gap), self._until()) from None
        if kept.batches.count:
            self._position = start + len(kept.data)
            self._offset = self._lowest = kept.next_offset
        return kept

    def _until(self) -> int | None:
        return None if self._limit == _NEVER else self._limit

    def _check_order(self, piece: Piece, count: int, segment: Segment) -> None:
        """A batch's offset is outside its CRC: it is held to the batches around it and to the segment."""
        bases = np.asarray(piece.batches.base_offset)[:count]
        lasts = last_offsets(piece.batches)[:count]
        if not count:
            return
        if bases[0] < self._lowest or bool((bases[1:] <= lasts[:-1]).any()) or lasts[-1] >= self._limit:
            raise Gap(f"{segment.path}: its offsets are out of order behind {self._offset}")
