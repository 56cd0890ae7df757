"""The batches of a segment that is to be cleaned, some at a time, each looked at before it is believed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Disk
from tidelog.log.cleaning.errors import UncleanableError
from tidelog.log.cleaning.order import Source
from tidelog.log.cleaning.twins import Twin
from tidelog.log.names import LOG, TXN_INDEX, segment_name
from tidelog.log.scan import header_fits
from tidelog.log.txn_index import ABORTED_ENTRY, Aborted
from tidelog.protocol.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header
from tidelog.protocol.records import Batches, Columns, scan

DECODED_BYTES: Final = 1 << 29
"""What the compressed batches of a stretch may take at once."""


class Stretch(NamedTuple):
    """Batches that lie one behind the other, whole and in order; what is in them has the right CRC."""

    data: memoryview
    batches: Batches
    ends_source: bool
    """Its last batch is the last of the segment."""

    def header(self, index: int) -> BatchHeader:
        return read_header(self.data, self.batches.position[index])

    def batch(self, index: int) -> memoryview:
        position = self.batches.position[index]
        return self.data[position : position + LOG_OVERHEAD + self.batches.batch_length[index]]

    def last_offset(self, index: int) -> int:
        return int(self.batches.base_offset[index] + self.batches.last_offset_delta[index])


def read_source(disk: Disk, directory: str, source: Source, twin: Twin, read_bytes: int) -> Iterator[Stretch]:
    """All batches, so many bytes of them at a time or one that is larger. UncleanableError when one is damaged."""
    path = f"{directory}/{segment_name(source.base_offset, LOG)}"
    file = disk.open(path)
    position, due, wanted = 0, source.base_offset, read_bytes
    try:
        while position < source.size:
            data = memoryview(file.read(position, min(wanted, source.size - position)))
            try:
                batches = scan(data, check_crc=False, twin=twin.name)
            except ProtocolError as error:
                raise UncleanableError(f"{path} is damaged behind position {position}: {error}") from None
            used = int(batches.payload_end[batches.count - 1]) if batches.count else 0
            following = _next_size(data[used:], source.size - position - used)
            if not used:
                if following is None or wanted >= following:
                    raise _damaged(path, position)
                wanted = following
                continue
            row = twin.loops.out_of_order(batches, due, source.end_offset)
            if row < 0:
                row = twin.wrong_crc(data, batches)
            if row >= 0:
                raise _damaged(path, position + int(batches.position[row]))
            position += used
            stretch = Stretch(data[:used], batches, position == source.size)
            due = stretch.last_offset(batches.count - 1) + 1
            # What is larger than the rest was read in part: the next time it is read whole.
            wanted = max(read_bytes, following or 0)
            yield stretch
    finally:
        file.close()


def _next_size(rest: memoryview, room: int) -> int | None:
    """Of the batch that begins there; None when it cannot be one, or is not known."""
    if len(rest) < HEADER_SIZE:
        return None
    header = read_header(rest)
    return header.size if header_fits(header, room) else None


def _damaged(path: str, position: int) -> UncleanableError:
    return UncleanableError(f"{path} is damaged at position {position}")


def decoded(stretch: Stretch, rows: Sequence[int], twin: Twin) -> Columns:
    """The records of these batches. ProtocolError when they take too much room at once: a kilobyte of zstd can be a
    gigabyte."""
    return twin.decode(stretch.data, stretch.batches, rows, DECODED_BYTES)


def read_aborted(disk: Disk, directory: str, source: Source) -> list[Aborted]:
    """The aborted transactions whose marker is in the segment."""
    if not source.has_aborted:
        return []
    path = f"{directory}/{segment_name(source.base_offset, TXN_INDEX)}"
    data = disk.read_file(path)
    if data is None or len(data) % ABORTED_ENTRY.size:
        raise UncleanableError(f"{path} is missing or damaged")
    return [Aborted._make(fields[1:]) for fields in ABORTED_ENTRY.iter_unpack(data)]
