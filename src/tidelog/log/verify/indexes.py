"""The indexes beside a segment's .log, held against the batches while these are walked over: of offsets and of times.
Read in blocks, never whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

from tidelog.log.index import OFFSET_ENTRY, TIME_ENTRY
from tidelog.log.verify.report import ReadableFile
from tidelog.protocol.batch import BatchHeader

_BLOCK_ENTRIES: Final = 8192
_NEVER: Final = 1 << 63
_INTERVAL: Final = 4096

Say = Callable[[str, int | None], None]
"""Told what is wrong and at which byte of the index."""


class _Entries:
    """Entries one by one, in order, up to the zeros that a killed Apache broker leaves behind the last one."""

    def __init__(self, file: ReadableFile, packing: Struct, say: Say) -> None:
        self.size = file.size()
        self.number = -1
        self._packing = packing
        self._entries = self._read(file)
        self.zeros = 0
        if self.size % packing.size:
            say(f"{self.size} bytes, no multiple of {packing.size}", self.size - self.size % packing.size)

    @property
    def position(self) -> int:
        return self.number * self._packing.size

    def next(self) -> tuple[int, int] | None:
        self.number += 1
        return next(self._entries, None)

    def _read(self, file: ReadableFile) -> Iterator[tuple[int, int]]:
        step = self._packing.size
        whole = self.size - self.size % step
        for start in range(0, whole, _BLOCK_ENTRIES * step):
            block = file.read(start, min(_BLOCK_ENTRIES * step, whole - start))
            for number, (key, value) in enumerate(self._packing.iter_unpack(block[: len(block) - len(block) % step])):
                if not key and not value:
                    self.zeros = whole - start - number * step
                    return
                yield key, value


class OffsetIndexCheck:
    """An entry names the last offset of a batch (of the last one of a set, in old Kafka's) and where that begins."""

    def __init__(self, file: ReadableFile, base_offset: int, say: Say) -> None:
        self._base = base_offset
        self._say = say
        self._entries = _Entries(file, OFFSET_ENTRY, say)
        self._offset = -1
        self.awaited: int | None = None
        self._awaited_at = 0
        self._gap = 0
        self._last_position = 0
        self.next_position = -1
        self._step()

    def _step(self) -> None:
        before, at = self._offset, self.next_position
        while (entry := self._entries.next()) is not None:
            self._offset, self.next_position = self._base + entry[0], entry[1]
            if before < 0 or (self._offset > before and self.next_position > at):
                return
            self._say(f"entry {self._entries.number} is not behind the one before it", self._entries.position)
            if self.next_position > at:
                return
        self.next_position = _NEVER

    def visit(self, position: int, header: BatchHeader, log_is_damaged: bool) -> None:
        """To be called for each batch at or behind next_position, and before one that was awaited could be missed."""
        while self.next_position < position:
            if not log_is_damaged:
                self._say(f"points to byte {self.next_position} of the log, where no batch begins", self._at)
            self._step()
        if self.next_position == position:
            self._meet(position, header)
            self._step()

    @property
    def _at(self) -> int:
        return self._entries.position

    def _meet(self, position: int, header: BatchHeader) -> None:
        self._gap = max(self._gap, position - self._last_position)
        self._last_position = position
        if self._offset < header.base_offset:
            self._say(f"says offset {self._offset} for the batch of {header.base_offset}", self._at)
        elif self._offset != header.last_offset:
            self.awaited, self._awaited_at = self._offset, self._at
            if self._offset < header.last_offset:
                self._miss()

    def pass_by(self, header: BatchHeader) -> None:
        """Every batch while one is awaited: old Kafka's entry names the end of a set of batches."""
        if self.awaited is not None and header.last_offset >= self.awaited:
            if header.last_offset != self.awaited:
                self._miss()
            self.awaited = None

    def _miss(self) -> None:
        self._say(f"says offset {self.awaited}, with which no batch ends", self._awaited_at)
        self.awaited = None

    def finish(self, log_size: int, largest_batch: int, note: Say, log_is_damaged: bool) -> None:
        while self.next_position != _NEVER:
            if not log_is_damaged or self.next_position >= log_size:
                self._say(f"points to byte {self.next_position}, the log has {log_size}", self._at)
            self._step()
        if self.awaited is not None and not log_is_damaged:
            self._miss()
        if self._entries.zeros:
            self._say(f"ends with {self._entries.zeros} zeros", self._at)
        rest = log_size - self._last_position
        if rest > 2 * (max(self._gap, _INTERVAL) + largest_batch):
            note(f"ends early: the last {rest} bytes of the log are found only by searching", self._at)


class TimeIndexCheck:
    """An entry says that this is the largest timestamp up to its offset, and that the batch there has it."""

    def __init__(self, file: ReadableFile, base_offset: int, say: Say) -> None:
        self._base = base_offset
        self._say = say
        self._entries = _Entries(file, TIME_ENTRY, say)
        self._timestamp = -1
        self._largest = -1
        self._found = False
        self.next_offset = -1
        self._step()

    def _step(self) -> None:
        timestamp, offset = self._timestamp, self.next_offset
        entry = self._entries.next()
        if entry is None:
            self.next_offset = _NEVER
            return
        self._timestamp, self.next_offset = entry[0], self._base + entry[1]
        if self._found and (self._timestamp <= timestamp or self.next_offset < offset):
            self._say(f"entry {self._entries.number} is not behind the one before it", self._entries.position)
        self._found = True

    def visit(self, header: BatchHeader, newest: int) -> None:
        """To be called for each batch that reaches next_offset, with the largest timestamp up to its end."""
        while self.next_offset <= header.last_offset:
            if self.next_offset < header.base_offset:
                self._say(f"names offset {self.next_offset}, which no batch holds", self._entries.position)
            elif not header.record_count:
                # What Kafka's cleaner has emptied keeps its time; ours are not indexed.
                if self._timestamp != header.max_timestamp:
                    self._say(f"names offset {self.next_offset}, where no record is left", self._entries.position)
            elif self._timestamp != newest or header.max_timestamp != newest:
                what = f"says timestamp {self._timestamp} for offset {self.next_offset}; the newest there is {newest}"
                self._say(what, self._entries.position)
            self._largest = max(self._largest, self._timestamp)
            self._step()

    def finish(self, end_offset: int, newest: int) -> None:
        while self.next_offset != _NEVER:
            self._say(f"names offset {self.next_offset}, the segment ends at {end_offset}", self._entries.position)
            self._step()
        if self._entries.zeros:
            self._say(f"ends with {self._entries.zeros} zeros", self._entries.position)
        if newest > self._largest:
            self._say(f"lacks the newest timestamp {newest}", self._entries.position)
