"""The same as pure_loops.py with numba: a few calls for a whole stretch of batches. Python makes only those batches
that are compressed, that get a delete horizon, or of which no more than the header stays."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tidelog.kernel.ports import Buffer
from tidelog.log.cleaning import kernels_loops
from tidelog.log.cleaning.batches import empty_batch
from tidelog.log.cleaning.fates import COPY, GIVEN, LOOK, MAKE
from tidelog.log.cleaning.keys import Keys
from tidelog.log.segment import Segment, Tally
from tidelog.protocol.batch import CONTROL, TRANSACTIONAL, read_header, set_crc
from tidelog.protocol.records import Batches, Columns
from tidelog.protocol.records.compiling import as_bytes
from tidelog.protocol.records.machine import HAS_CRC

if TYPE_CHECKING:
    from tidelog.log.cleaning.keeping import Keeper, Part

BATCH: Final = ("position", "batch_length", "attributes", "base_timestamp", "max_timestamp", "record_count")
_RECORD: Final = ("start", "end", "value_size", "timestamp")
_SIZE, _MAX_TIME, _COUNT, _FIRST_ROW, _END_ROW, _AT = range(6)
_NO_ROWS: Final = np.empty(0, np.uint8)


class Kept(NamedTuple):
    """What stays of some batches, and of each its place, size, last offset, largest time and number of records."""

    data: memoryview
    batches: Any

    def append_to(self, segment: Segment, index_interval_bytes: int) -> None:
        entries = np.empty((4, self.batches.shape[1]), np.int64)
        count, *tally = kernels_loops.mark(self.batches, segment.size, *segment.tally, index_interval_bytes, entries)
        marks: Any = entries[:, :count].T.tolist()
        segment.append_marked(self.data, marks, Tally._make(tally))


def _last_offsets(batches: Any) -> Any:
    return batches.base_offset + batches.last_offset_delta


def out_of_order(batches: Any, due: int, end_offset: int) -> int:
    ends = _last_offsets(batches)
    wrong = ends >= end_offset
    wrong[0] |= batches.base_offset[0] < due
    wrong[1:] |= batches.base_offset[1:] <= ends[:-1]
    return int(wrong.argmax()) if wrong.any() else -1


def data_from(batches: Any, first_offset: int) -> Any:
    return np.flatnonzero((_last_offsets(batches) >= first_offset) & (batches.attributes & CONTROL == 0))


def in_transactions(batches: Any) -> list[int]:
    rows: list[int] = np.flatnonzero(batches.attributes & (TRANSACTIONAL | CONTROL)).tolist()
    return rows


def ending_at(batches: Any, last_offsets: Collection[int]) -> list[int]:
    if not last_offsets:
        return []
    rows: list[int] = np.flatnonzero(np.isin(_last_offsets(batches), np.array(list(last_offsets), np.int64))).tolist()
    return rows


def sort_out(batches: Batches, keys: Keys) -> Any:
    fates = np.empty(batches.count, np.uint8)
    kernels_loops.sort_out(
        batches.base_offset,
        batches.last_offset_delta,
        batches.attributes,
        as_bytes(memoryview(keys.flags)),
        keys.flags_from,
        keys.latest_offset,
        fates,
    )
    return fates


def looked_at(fates: Any, first: int, end: int) -> Any:
    return np.flatnonzero(fates[first:end] == LOOK) + first


def kept(keeper: Keeper, part: Part, columns: Columns | None) -> Kept:
    stretch, first, end = part.stretch, part.first, part.end
    batches: Any = stretch.batches
    fates = part.fates[first:end].copy()
    stays = np.zeros(end - first, np.uint8)
    for index in part.stays:
        if first <= index < end:
            stays[index - first] = 1
    table = np.stack([getattr(batches, name)[first:end] for name in BATCH])
    results = np.zeros((6, end - first), np.int64)
    records, found, payload = np.empty((len(_RECORD), 0), np.int64), _NO_ROWS, memoryview(b"")
    if columns is not None:
        bounds: Any = columns.batches.first_record
        looked = fates == LOOK
        results[_FIRST_ROW, looked] = bounds[:-1]
        results[_END_ROW, looked] = bounds[1:]
        records = np.stack([getattr(columns, name) for name in _RECORD])
        found, payload = keeper.keys.last_of_key(columns), memoryview(columns.data)
    kernels_loops.plan(fates, stays, table, records, found, keeper.now_ms, results)
    made = _made(keeper, part, columns, fates, results, found)
    results[_AT, 1:] = np.cumsum(results[_SIZE])[:-1]
    out = np.empty(int(results[_SIZE].sum()), np.uint8)
    wrong = kernels_loops.write(as_bytes(stretch.data), as_bytes(payload), fates, table, records, found, results, out)
    assert wrong == 0, "a batch does not lie where it should"
    view = memoryview(out)
    for index, batch in made.items():
        at = int(results[_AT, index])
        view[at : at + len(batch)] = batch
    if not HAS_CRC:
        for index in np.flatnonzero(fates == COPY).tolist():
            at = int(results[_AT, index])
            set_crc(view[at : at + int(results[_SIZE, index])])
    there = results[_SIZE] > 0
    last_offsets = _last_offsets(batches)[first:end]
    rows = (results[_AT], results[_SIZE], last_offsets, results[_MAX_TIME], results[_COUNT])
    return Kept(view, np.stack([row[there] for row in rows]))


def _made(
    keeper: Keeper, part: Part, columns: Columns | None, fates: Any, results: Any, found: Any
) -> dict[int, Buffer]:
    """The batches that Python makes; how large they are goes to the results."""
    made: dict[int, Buffer] = {}
    for at in np.flatnonzero((fates == MAKE) | (fates == GIVEN)).tolist():
        index = part.first + at
        batch = part.given[index] if fates[at] == GIVEN else None
        first, end = results[_FIRST_ROW, at], results[_END_ROW, at]
        rows = (np.flatnonzero(found[first:end]) + first).tolist()
        if rows:
            assert columns is not None
            batch = keeper.batch_of(part.stretch, index, columns, rows)
        if batch is None and index in part.stays:
            batch = empty_batch(part.stretch.header(index))
        if batch is not None:
            made[at] = batch
            header = read_header(batch)
            results[_SIZE, at], results[_MAX_TIME, at] = len(batch), header.max_timestamp
            results[_COUNT, at] = header.record_count
    return made
