"""Which leader epoch began at which offset (KIP-101, KIP-279), kept in leader-epoch-checkpoint.

The file is written without a sync: the log's next flush carries it, and what a power cut takes is found again in the
headers of the batches. A disk without room is no reason to refuse a batch: the next flush tries again.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from tidelog.kernel.errors import DiskFullError
from tidelog.kernel.ports import Disk
from tidelog.log.checkpoints import decode_lines, encode_lines, natural
from tidelog.log.errors import CorruptFileError
from tidelog.log.names import LEADER_EPOCHS

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    epoch: int
    end_offset: int


def decode_epochs(data: bytes, path: str) -> list[EpochStart]:
    """CorruptFileError for a file that is no list of growing epochs and offsets."""
    entries: list[EpochStart] = []
    for fields in decode_lines(data, path):
        try:
            epoch, start = fields
            entry = EpochStart(natural(epoch), natural(start))
        except ValueError:
            raise CorruptFileError(f"{path} has a malformed line: {' '.join(fields)!r}") from None
        if entries and (entry.epoch <= entries[-1].epoch or entry.start_offset < entries[-1].start_offset):
            raise CorruptFileError(f"{path} goes back at epoch {entry.epoch}")
        entries.append(entry)
    return entries


class LeaderEpochs:
    __slots__ = ("_disk", "_entries", "_is_stale", "changes", "is_unwritten", "latest", "path", "synced_changes")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._entries: list[EpochStart] = []
        self.path = f"{directory}/{LEADER_EPOCHS}"
        self.latest = UNDEFINED_EPOCH
        self.changes = 0
        self.synced_changes = 0
        self._is_stale = False
        self.is_unwritten = False

    def load(self) -> bool:
        """Whether the file told anything, be it that there is no epoch. CorruptFileError as in decode_epochs."""
        data = self._disk.read_file(self.path)
        self._set(decode_epochs(data or b"", self.path))
        return bool(data)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    def note(self, epoch: int, start_offset: int) -> bool:
        """Learn of an epoch, without writing it down; whether anything changed."""
        if epoch < 0 or (epoch == self.latest and start_offset >= self._entries[-1].start_offset):
            return False
        entries = self._entries
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochStart(epoch, start_offset))
        self.latest = epoch
        return True

    def assign(self, epoch: int, start_offset: int) -> None:
        """The epoch begins at the offset; whatever said otherwise about later offsets or epochs is dropped."""
        if self.note(epoch, start_offset):
            self.write()

    def begin(self, epoch: int, start_offset: int) -> None:
        """A leader's epoch begins at the log's end. It is written down when there is a batch for it (`settle`): a start
        would drop it before that, and ten thousand partitions get a new epoch whenever their node comes back."""
        if self.note(epoch, start_offset):
            self.is_unwritten = True

    def settle(self) -> None:
        """Write down the epochs that have begun: a batch follows. DiskFullError when there is no room."""
        self.write()
        if self._is_stale:
            self.is_unwritten = True
            raise DiskFullError(f"no room for {self.path}")

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch in which the offset was, or would be, written; -1 when nothing is known of it."""
        found = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[found - 1].epoch if found else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest epoch not above the one asked for, and where it ended. Undefined for one of the future."""
        if epoch < 0 or not self._entries or epoch > self.latest:
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        later = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        # Below the first known epoch the answer is a guess, as in Kafka: epochs in between may have come and gone.
        known = self._entries[later - 1].epoch if later else epoch
        return EpochEnd(known, self._entries[later].start_offset)

    def bound(self, start_offset: int, end_offset: int) -> None:
        """Fit what was loaded to the log that was found. Not written down: the next start comes to the same."""
        self._cut_end(end_offset)
        self._cut_start(start_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that began at or behind the offset."""
        if self._cut_end(end_offset):
            self.write()

    def _cut_end(self, end_offset: int) -> bool:
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if len(kept) == len(self._entries):
            return False
        self._set(kept)
        return True

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that ended before the offset; the one that holds it begins there now."""
        if self._cut_start(start_offset):
            self.write()

    def _cut_start(self, start_offset: int) -> bool:
        first = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset) - 1
        if first < 0 or (first == 0 and self._entries[0].start_offset == start_offset):
            return False
        self._set([EpochStart(self._entries[first].epoch, start_offset), *self._entries[first + 1 :]])
        return True

    def clear(self) -> None:
        self._set([])

    def write(self) -> None:
        data = encode_lines(f"{epoch} {start}" for epoch, start in self._entries)
        self.changes += 1
        self.is_unwritten = False
        try:
            self._disk.replace_file(self.path, data, durable=False)
            self._is_stale = False
        except DiskFullError:
            self._is_stale = True

    def is_written(self) -> bool:
        """Whether the file says what is known, after another try if it did not."""
        if self._is_stale:
            self.write()
        return not self._is_stale

    def _set(self, entries: list[EpochStart]) -> None:
        self._entries = entries
        self.latest = entries[-1].epoch if entries else UNDEFINED_EPOCH
