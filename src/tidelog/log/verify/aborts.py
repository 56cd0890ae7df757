"""The index of aborted transactions of each segment, held against the markers that the walk over its batches has found.

Where a log no longer holds the data of a transaction, or its beginning, the index may tell more than the batches do.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.log.transactions import read_ending
from tidelog.log.txn_index import ABORTED_ENTRY
from tidelog.log.verify.indexes import Say
from tidelog.log.verify.report import ReadableFile
from tidelog.protocol.batch import BatchHeader


class Aborts:
    """Of one partition, segment by segment."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._aborted: dict[int, tuple[int, bool]] = {}

    def visit(self, header: BatchHeader, read: Callable[[], bytes]) -> None:
        """To be called for every batch, in order; `read` gives its bytes."""
        if header.producer_id < 0 or not header.is_transactional:
            return
        if not header.is_control:
            self._open.add(header.producer_id)
            return
        ending = read_ending(read(), header)
        has_data = header.producer_id in self._open
        self._open.discard(header.producer_id)
        if ending is not None and not ending.committed:
            self._aborted[header.base_offset] = header.producer_id, has_data

    def next_segment(self) -> None:
        self._aborted.clear()

    @property
    def must_be_indexed(self) -> bool:
        return any(has_data for _, has_data in self._aborted.values())

    def check(self, file: ReadableFile, base_offset: int, end_offset: int, say: Say, *, is_damaged: bool) -> None:
        size, step = file.size(), ABORTED_ENTRY.size
        if size % step:
            say(f"{size} bytes, no multiple of {step}", size - size % step)
        before = -1
        missing = dict(self._aborted)
        for position in range(0, size - size % step, step):
            version, producer_id, first, last, stable = ABORTED_ENTRY.unpack(file.read(position, step))
            if version != 0 or producer_id < 0:
                say(f"an entry of version {version} for producer {producer_id}", position)
            elif not (0 <= first <= last and base_offset <= last < end_offset and 0 <= stable <= last + 1):
                say(f"a transaction from {first} to {last} (stable to {stable}) is not of this segment", position)
            elif last <= before:
                say(f"the transaction that ends at {last} is not behind the one before it", position)
            elif not is_damaged and missing.pop(last, (None, False))[0] != producer_id:
                say(f"no marker at {last} has aborted a transaction of producer {producer_id}", position)
            before = max(before, last)
        if not is_damaged:
            for offset, (producer_id, has_data) in missing.items():
                if has_data:
                    say(f"lacks the transaction of producer {producer_id} that was aborted at {offset}", None)
