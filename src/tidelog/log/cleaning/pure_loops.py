"""The loops of a cleaning over batches in plain Python: what runs without numba, and what native_loops.py is held
against."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, NamedTuple

from tidelog.kernel.ports import Buffer
from tidelog.log.cleaning.batches import empty_batch
from tidelog.log.cleaning.fates import DROP, GIVEN, LOOK, WHOLE
from tidelog.log.cleaning.keys import Keys
from tidelog.log.segment import Segment
from tidelog.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader, read_header
from tidelog.protocol.records import Batches, Columns

if TYPE_CHECKING:
    from tidelog.log.cleaning.keeping import Keeper, Part


class Kept(NamedTuple):
    """What stays of some batches, and where each lies in it."""

    data: Buffer
    run: list[tuple[int, BatchHeader]]

    def append_to(self, segment: Segment, index_interval_bytes: int) -> None:
        segment.append_run(self.data, self.run, index_interval_bytes)


def out_of_order(batches: Batches, due: int, end_offset: int) -> int:
    """The first batch with an offset before the one that is due, or one that is not the segment's; -1 without one."""
    for row, (base, delta) in enumerate(zip(batches.base_offset, batches.last_offset_delta, strict=True)):
        if base < due or base + delta >= end_offset:
            return row
        due = base + delta + 1
    return -1


def data_from(batches: Batches, first_offset: int) -> list[int]:
    """The batches that reach the offset, markers excepted."""
    columns = (batches.base_offset, batches.last_offset_delta, batches.attributes)
    return [
        row
        for row, (base, delta, attributes) in enumerate(zip(*columns, strict=True))
        if base + delta >= first_offset and not attributes & CONTROL
    ]


def in_transactions(batches: Batches) -> list[int]:
    """Data and markers."""
    return [row for row, attributes in enumerate(batches.attributes) if attributes & (TRANSACTIONAL | CONTROL)]


def ending_at(batches: Batches, last_offsets: Container[int]) -> list[int]:
    """The batches whose last offset is one of these."""
    ends = zip(batches.base_offset, batches.last_offset_delta, strict=True)
    return [row for row, (base, delta) in enumerate(ends) if base + delta in last_offsets]


def sort_out(batches: Batches, keys: Keys) -> bytearray:
    """For each batch what is known without its records."""
    fates = bytearray(batches.count)
    columns = (batches.base_offset, batches.last_offset_delta, batches.attributes)
    for row, (base, delta, attributes) in enumerate(zip(*columns, strict=True)):
        if attributes & CONTROL:
            fates[row] = GIVEN
        elif base > keys.latest_offset:
            fates[row] = WHOLE
        else:
            fates[row] = LOOK if keys.may_have_last(base, base + delta) else DROP
    return fates


def looked_at(fates: bytearray, first: int, end: int) -> list[int]:
    return [row for row in range(first, end) if fates[row] == LOOK]


def kept(keeper: Keeper, part: Part, columns: Columns | None) -> Kept:
    """What stays of some batches; the columns have the records of those that are to be looked at."""
    stretch, last_of_key = part.stretch, keeper.keys.last_of_key(columns) if columns is not None else b""
    parts: list[Buffer] = []
    run: list[tuple[int, BatchHeader]] = []
    size = looked = 0
    for index in range(part.first, part.end):
        fate = part.fates[index]
        batch: Buffer | None = None
        if fate == WHOLE:
            batch = stretch.batch(index)
        elif fate == GIVEN:
            batch = part.given[index]
        elif fate == LOOK:
            assert columns is not None
            tombstones = keeper.keeps_tombstones(stretch.header(index))
            bounds = columns.batches.first_record[looked], columns.batches.first_record[looked + 1]
            rows = keeper.keys.kept_rows(columns, last_of_key, *bounds, tombstones=tombstones)
            batch = keeper.batch_of(stretch, index, columns, rows) if rows else None
            looked += 1
        if batch is None and index in part.stays:
            batch = empty_batch(stretch.header(index))
        if batch is not None:
            parts.append(batch)
            run.append((size, read_header(batch)))
            size += len(batch)
    return Kept(b"".join(parts), run)
