"""Which batches belong to aborted transactions, by the markers that end them: the first one of a producer behind its
batch decides. A broker's .txnindex is not used: the newest entries may be in its memory only, and the cleaner takes out
those of data that a file which is still open here has."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Final

import numpy as np

from tidelog.client.fetching import AbortedTransaction
from tidelog.log.transactions import read_ending
from tidelog.protocol.batch import CONTROL, TRANSACTIONAL, crc_is_valid
from tidelog.spark.segments.bounds import Lineage
from tidelog.spark.segments.folder import Gap
from tidelog.spark.segments.segment import Piece, Segment
from tidelog.spark.segments.walk import Walk

AHEAD_BYTES_MAX: Final = 256 << 20
"""So far it looks for the end of a transaction; behind that the broker is asked."""


class Markers:
    """Of one folder, read in order. All before the end of the table is at or below LSO, so each marker exists."""

    def __init__(self, ahead: Walk, lineage: Lineage) -> None:
        self._ahead = ahead
        self._lineage = lineage
        self._ends: dict[int, list[tuple[int, bool]]] = {}
        """By producer: (offset of the marker, whether it aborts), from the last piece's start up to _known_to."""
        self._known_to = -1

    def aborted(self, piece: Piece, segment: Segment) -> tuple[AbortedTransaction, ...]:
        """As a broker tells a fetch of this piece of the segment. Gap when the end of a transaction is not found."""
        attributes = np.asarray(piece.batches.attributes)
        rows = np.flatnonzero(attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL)
        if not rows.size:
            return ()
        if self._known_to < piece.base_offset:
            self._ends.clear()
            self._known_to = piece.base_offset
        self._note(piece)
        producers = np.asarray(piece.batches.producer_id)[rows].tolist()
        offsets = np.asarray(piece.batches.base_offset)[rows].tolist()
        self._look_ahead(dict(zip(producers, offsets, strict=True)), piece, segment)
        found: dict[tuple[int, int], AbortedTransaction] = {}
        for producer, offset in zip(producers, offsets, strict=True):
            marker, is_abort = self._end_of(producer, offset)
            if is_abort:
                found.setdefault((producer, marker), AbortedTransaction(producer, offset))
        self._forget(piece.next_offset)
        return tuple(found.values())

    def _look_ahead(self, last: dict[int, int], piece: Piece, segment: Segment) -> None:
        """Until the end of each producer's last transaction is known."""
        looked = 0
        while any(not self._is_known(producer, offset) for producer, offset in last.items()):
            if looked > AHEAD_BYTES_MAX:
                raise Gap(f"the end of a transaction is more than {AHEAD_BYTES_MAX:,} bytes away", piece.next_offset)
            try:
                further = self._ahead.next(self._known_to)
                if further is None:
                    raise Gap("no end of a transaction")
                self._lineage.check(further.batches)
            except Gap as gap:
                raise Gap(f"the end of a transaction is not found: {gap}", piece.next_offset) from None
            self._note(further)
            looked += len(further.data)
        if looked and not segment.is_current():
            # While this file was read another took its place, and the markers of what is only in here may be gone.
            raise Gap(f"{segment.path} was replaced while it was read", piece.next_offset)

    def _note(self, piece: Piece) -> None:
        """The markers from _known_to on."""
        batches = piece.batches
        for row in np.flatnonzero(np.asarray(batches.attributes) & CONTROL).tolist():
            header = batches.header(row)
            if header.base_offset < self._known_to:
                continue
            position = int(batches.position[row])
            batch = piece.data[position : position + header.size]
            ending = read_ending(batch, header) if crc_is_valid(batch, header) else None
            if ending is None:
                raise Gap(f"the control batch at offset {header.base_offset} cannot be read", piece.next_offset)
            insort(self._ends.setdefault(header.producer_id, []), (header.base_offset, not ending.committed))
        self._known_to = max(self._known_to, piece.next_offset)

    def _is_known(self, producer: int, offset: int) -> bool:
        ends = self._ends.get(producer)
        return bool(ends) and ends is not None and ends[-1][0] > offset

    def _end_of(self, producer: int, offset: int) -> tuple[int, bool]:
        ends = self._ends[producer]
        return ends[bisect_right(ends, (offset, True))]

    def _forget(self, before: int) -> None:
        """What no later piece asks for."""
        for producer, ends in list(self._ends.items()):
            kept = [end for end in ends if end[0] >= before]
            if kept:
                self._ends[producer] = kept
            else:
                del self._ends[producer]
