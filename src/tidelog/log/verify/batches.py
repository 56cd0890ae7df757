"""The batches of one .log (or metadata .checkpoint) file: lengths, format, CRC, order, and on request the records.

Reads in chunks. Behind a damage the walk goes on at the next batch that can be found, so that one bad byte does not
hide what else is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from tidelog.kernel.errors import ProtocolError
from tidelog.log.scan import find_batch, header_fits
from tidelog.log.verify.report import ReadableFile
from tidelog.protocol.batch import ATTRIBUTES_OFFSET, HEADER, HEADER_SIZE, MAGIC, BatchHeader, Record, iter_records
from tidelog.protocol.compression import Codec
from tidelog.protocol.crc import crc32c

_CHUNK: Final = 2 << 20
_DEEP_MAX: Final = 1 << 28
_CODEC_MAX: Final = max(Codec)


class Trouble(Protocol):
    """Told what is wrong with a batch."""

    def __call__(self, what: str, position: int, offset: int | None = None) -> None: ...


class BatchWalk:
    """One pass over a file. `next_offset` and `epoch` are what the next batch must not fall below."""

    def __init__(
        self,
        file: ReadableFile,
        *,
        next_offset: int,
        epoch: int,
        limit: int,
        trouble: Trouble,
        advance: Callable[[int], object],
        may_skip_before: int = 0,
        deep: Callable[[Record], object] | None = None,
    ) -> None:
        self._file = file
        self._trouble = trouble
        self._advance = advance
        self._deep = deep
        self._may_skip_before = may_skip_before
        self._chunk = b""
        self._start = 0
        self.size = file.size()
        self.next_offset = next_offset
        self.epoch = epoch
        self.limit = limit
        """Offsets from here on belong to the next segment."""
        self.count = 0
        self.damaged = False

    def batches(self) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of every batch that is whole and right."""
        position, size, make, unpack = 0, self.size, BatchHeader._make, HEADER.unpack_from
        while position < size:
            if size - position < HEADER_SIZE:
                self._damage(f"{size - position} bytes at the end are no batch", position)
                return
            at = position - self._start
            if at < 0 or at + HEADER_SIZE > len(self._chunk):
                at = self._load(position)
            header = make(unpack(self._chunk, at))
            wrong = self._misfit(header, size - position)
            if wrong is None and not self._crc_is_valid(position, header):
                wrong = "the checksum does not match"
            if wrong is not None:
                self._damage(wrong, position, self._likely_offset(header))
                position = self._behind(position, header)
                continue
            self.count += 1
            if self._check(position, header):
                yield position, header
            position += header.batch_length + 12

    def _load(self, position: int) -> int:
        self._chunk = self._file.read(position, min(_CHUNK, self.size - position))
        self._start = position
        if len(self._chunk) < min(HEADER_SIZE, self.size - position):
            raise ProtocolError("the file became shorter while it was read: is a node running on it?")
        return 0

    def _misfit(self, header: BatchHeader, room: int) -> str | None:
        if header.magic != MAGIC:
            return f"format {header.magic} (or zeros) where a batch of format {MAGIC} should begin"
        if header_fits(header, room):
            return None
        if header.batch_length + 12 > room:
            return f"a batch of {header.batch_length + 12} bytes is cut off after {room}"
        return "the fields of a batch's header make no sense"

    def _crc_is_valid(self, position: int, header: BatchHeader) -> bool:
        at, size = position - self._start, header.batch_length + 12
        if at + size > len(self._chunk) and size <= _CHUNK:
            at = self._load(position)
        view = memoryview(self._chunk)
        crc = crc32c(view[at + ATTRIBUTES_OFFSET : at + size])
        have = len(self._chunk) - at
        while have < size:  # larger than a chunk: piece by piece
            piece = self._file.read(position + have, min(_CHUNK, size - have))
            if not piece:
                return False
            crc = crc32c(piece, crc)
            have += len(piece)
        if crc != header.crc:
            return False
        self._advance(size)
        return True

    def _check(self, position: int, header: BatchHeader) -> bool:
        """What the CRC does not cover, or what a writer got wrong; whether the offsets can be believed."""
        base, last = header.base_offset, header.base_offset + header.last_offset_delta
        if last >= self.limit:
            self._damage(f"offset {last} belongs to the next segment, which begins at {self.limit}", position)
            return False
        if base < self.next_offset:
            self._damage(f"offsets go back to {base}, {self.next_offset} is due", position)
            self.next_offset = last + 1
            return False
        if base > self.next_offset >= self._may_skip_before:
            self._trouble(f"offsets {self.next_offset} to {base - 1} are missing", position, self.next_offset)
        if header.leader_epoch < self.epoch:
            self._damage(f"leader epoch {header.leader_epoch} follows {self.epoch}", position, base)
        if not 0 <= header.record_count <= header.last_offset_delta + 1 or header.codec > _CODEC_MAX:
            what = f"{header.record_count} records, compression {header.codec}, {header.last_offset_delta + 1} offsets"
            self._damage(f"{what} make no sense together", position, base)
        elif self._deep is not None:
            self._look_inside(position, header)
        self.next_offset = last + 1
        self.epoch = header.leader_epoch
        return True

    def _look_inside(self, position: int, header: BatchHeader) -> None:
        assert self._deep is not None
        size = header.size
        if size > _DEEP_MAX:
            return
        at = position - self._start
        batch = memoryview(self._chunk)[at : at + size]
        if len(batch) < size:
            batch = memoryview(self._file.read(position, size))
        before = header.base_offset - 1
        try:
            for record in iter_records(batch, header, limit_bytes=_DEEP_MAX):
                if record.offset <= before:
                    raise ProtocolError(f"offset {record.offset} follows {before} within the batch")
                before = record.offset
                self._deep(record)
        except ProtocolError as error:
            self._damage(str(error), position, header.base_offset)

    def _likely_offset(self, header: BatchHeader) -> int:
        return header.base_offset if header.base_offset == self.next_offset else self.next_offset

    def _damage(self, what: str, position: int, offset: int | None = None) -> None:
        self.damaged = True
        self._trouble(what, position, self.next_offset if offset is None else offset)

    # Going on

    def _behind(self, position: int, header: BatchHeader) -> int:
        """Where to go on: behind the batch when its length leads to another one, else wherever one can be found."""
        room = self.size - position
        if header.magic == MAGIC and header_fits(header, room):
            behind = position + header.size
            if behind == self.size or self._is_batch(behind):
                self._advance(behind - position)
                self.next_offset = max(self.next_offset, min(header.next_offset, self.limit))
                self._may_skip_before = max(self._may_skip_before, self.next_offset + 1)
                return behind
        found = find_batch(self._file, position + 1, self.size, self.next_offset, self.limit)
        self._advance((self.size if found is None else found[0]) - position)
        if found is None:
            return self.size
        # What is missing in between is said already.
        self._may_skip_before = max(self._may_skip_before, self.next_offset + 1)
        return found[0]

    def _is_batch(self, position: int) -> bool:
        head = self._file.read(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return False
        header = BatchHeader._make(HEADER.unpack_from(head))
        return header_fits(header, self.size - position) and self.next_offset < header.base_offset < self.limit
