"""What the batches of one fetch answer hold, from their headers: offsets that readers see, those that they do not, and
how many records fall into which window of time. Pure.

Records are decoded only where the header does not say enough:
- a batch that the cleaner has thinned has fewer records than offsets: which ones are left stands in the records;
- a batch across an end of what is audited;
- a batch whose first and greatest time lie in different windows. The broker's time (LogAppendTime) is one for the
  batch; of the producers' times the header has the first and the greatest, not the least, so a record that is older
  than the first of its batch can hide. `every_time` decodes all batches that can have such a record; windows.py says
  when.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from tidelog.client.aborted import Aborted
from tidelog.client.fetching import AbortedTransaction
from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Buffer
from tidelog.protocol.batch import APPEND_TIME, CONTROL, DELETE_HORIZON, LOG_OVERHEAD, TRANSACTIONAL
from tidelog.protocol.records import Batches, decode, scan
from tidelog.spark.audit.ranges import Ranges, joined, ranges, runs
from tidelog.spark.audit.windows import WindowCounts

_NONE: Final = np.empty(0, np.int64)


class Held(NamedTuple):
    """What a portion of a log holds between two offsets. Ranges are ascending and do not touch each other."""

    visible: Ranges
    hidden: Ranges
    """Of control records and of aborted transactions."""
    next_offset: int
    """Behind the last batch, or `start` when there is none."""
    batches: int
    decoded: int
    """Of the batches."""
    offsets: Any = None
    times: Any = None
    """Of every visible record, where `every_record` asked for them."""


class Asked(NamedTuple):
    start: int
    end: int
    committed: bool = True
    """Whether aborted records are hidden (read_committed)."""
    every_time: bool = False
    """Decode whatever may have a record in a window that the header does not tell."""
    every_record: bool = False
    """Decode all, and give the offsets and times."""


def held(data: Buffer, aborted: Iterable[AbortedTransaction], asked: Asked, windows: WindowCounts) -> Held:
    """Of every whole batch in data that has an offset from asked.start up to, not including, asked.end."""
    found = _Headers(scan(data))
    if not found.count:
        return Held(ranges(), ranges(), asked.start, 0, 0, _NONE, _NONE)
    if (found.base[1:] < found.next[:-1]).any():
        raise ProtocolError("the batches of a fetch answer are not in the order of their offsets")
    wanted = (found.next > asked.start) & (found.base < asked.end)
    is_hidden = wanted & _hidden(found, aborted if asked.committed else ())
    is_visible = wanted & ~is_hidden
    is_whole = (found.records == found.next - found.base) & (found.base >= asked.start) & (found.next <= asked.end)
    by_header = is_visible & is_whole & ~windows.may_straddle(found, asked.every_time)
    if asked.every_record:
        by_header[:] = False
    windows.add(found.max_time[by_header], found.records[by_header])
    to_decode = is_visible & ~by_header
    decoded = list(_decoded(data, found, to_decode, asked, windows))
    pieces = [runs(offsets) for offsets, _ in decoded]
    starts = np.concatenate([found.base[by_header], *(one.starts for one in pieces)])
    ends = np.concatenate([found.next[by_header], *(one.ends for one in pieces)])
    order = np.argsort(starts, kind="stable")
    return Held(
        visible=joined(starts[order], ends[order]),
        hidden=joined(np.maximum(found.base[is_hidden], asked.start), np.minimum(found.next[is_hidden], asked.end)),
        next_offset=max(int(found.next[-1]), asked.start),
        batches=int(wanted.sum()),
        decoded=int(to_decode.sum()),
        offsets=np.concatenate([_NONE, *(one for one, _ in decoded)]) if asked.every_record else None,
        times=np.concatenate([_NONE, *(one for _, one in decoded)]) if asked.every_record else None,
    )


class _Headers:
    """The columns of the headers as numpy, whichever twin of the decoder made them."""

    def __init__(self, batches: Batches) -> None:
        def column(values: Any) -> Any:
            return np.asarray(values, np.int64)

        self.count = batches.count
        self.position = column(batches.position)
        self.size = column(batches.batch_length) + LOG_OVERHEAD
        self.base = column(batches.base_offset)
        self.next = self.base + column(batches.last_offset_delta) + 1
        self.records = column(batches.record_count)
        self.attributes = column(batches.attributes)
        self.base_time = column(batches.base_timestamp)
        self.max_time = column(batches.max_timestamp)
        self.producer = column(batches.producer_id)

    @property
    def has_own_time(self) -> Any:
        """The records' own times (CreateTime)."""
        return self.attributes & APPEND_TIME == 0

    @property
    def has_horizon(self) -> Any:
        """The cleaner has put the time until which markers are kept in the place of the first record's time."""
        return self.attributes & DELETE_HORIZON > 0


def _hidden(found: _Headers, transactions: Iterable[AbortedTransaction]) -> Any:
    """Whether each batch is a marker, or of an aborted transaction."""
    hidden = np.zeros(found.count, bool)
    aborted = Aborted(transactions)
    of_interest = np.flatnonzero(found.attributes & (TRANSACTIONAL | CONTROL))
    columns = (found.next - 1, found.producer, found.attributes & CONTROL > 0)
    parts = zip(*(column[of_interest].tolist() for column in columns), strict=True)
    hidden[of_interest] = [aborted.hides_part(*part) for part in parts]
    return hidden


def _decoded(
    data: Buffer, found: _Headers, to_decode: Any, asked: Asked, windows: WindowCounts
) -> Iterator[tuple[Any, Any]]:
    """(offsets, times) of the records of these batches, a call of the decoder for each row of neighbours."""
    view = memoryview(data)
    for first, last in runs(np.flatnonzero(to_decode)).pairs():
        begin, end = int(found.position[first]), int(found.position[last - 1] + found.size[last - 1])
        columns = decode(view[begin:end], check_crc=False)  # scan has checked it
        offsets = np.asarray(columns.offset, np.int64)
        if (np.diff(offsets) <= 0).any():
            raise ProtocolError("the records of a batch are not in the order of their offsets")
        inside = (offsets >= asked.start) & (offsets < asked.end)
        times = np.asarray(columns.timestamp, np.int64)[inside]
        windows.add(times, None)
        yield offsets[inside], times
