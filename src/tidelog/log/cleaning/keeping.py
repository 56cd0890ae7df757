"""What stays of a batch: the last record of every key, tombstones until their horizon, nothing that was aborted, a
marker as long as something of its transaction is there and until its horizon, the last batch of each live producer.

The rules are Kafka's. Two things it does otherwise: the marker that is the last of a live producer stays whole, because
an empty one would not tell the epoch at the next start; and batches that are not yet in the map are not touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Buffer
from tidelog.log.cleaning.batches import batch_of_kept, delete_horizon_ms
from tidelog.log.cleaning.fates import DROP
from tidelog.log.cleaning.keys import Keys
from tidelog.log.cleaning.order import LastBatch
from tidelog.log.cleaning.reading import Stretch, decoded
from tidelog.log.cleaning.transactions import CleanedTransactions
from tidelog.log.cleaning.twins import Twin
from tidelog.log.transactions import read_ending
from tidelog.log.txn_index import Aborted
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.records import Columns, decode


class Part(NamedTuple):
    """Batches of a stretch from one to before another, and what is known of them (fates.py)."""

    stretch: Stretch
    first: int
    end: int
    fates: Any
    given: dict[int, Buffer | None]
    """What stays of each marker."""
    stays: set[int]
    """Batches of which the header stays if nothing else does."""


class Keeper:
    def __init__(
        self,
        keys: Keys,
        twin: Twin,
        transactions: CleanedTransactions,
        producers: Mapping[int, LastBatch],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self.keys = keys
        self._twin = twin
        self._transactions = transactions
        self._producers = producers
        self._last_offsets = {last.last_offset for last in producers.values() if last.last_offset >= 0}
        self.now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self.aborted: list[Aborted] = []
        """What the index of the cleaned segment has to tell; whoever writes that takes it from here."""

    def keep(self, stretch: Stretch, *, ends_group: bool) -> Iterator[Any]:
        """What stays of the batches, in order, at once or in several parts (Kept in the twins' loops). The last of a
        group stays, if only as an empty one: how far the cleaned segment reaches must be seen from it."""
        loops, batches = self._twin.loops, stretch.batches
        fates = loops.sort_out(batches, self.keys)
        given: dict[int, Buffer | None] = {}
        for index in loops.in_transactions(batches):
            header = stretch.header(index)
            if header.is_control:
                given[index] = self._keep_marker(stretch.batch(index), header)
            elif self._transactions.meet_data(header):
                fates[index] = DROP
        stays = {
            index
            for index in loops.ending_at(batches, self._last_offsets)
            if self._is_last_of_producer(stretch.header(index))
        }
        if ends_group and stretch.ends_source:
            stays.add(batches.count - 1)
        yield from self._keep(Part(stretch, 0, batches.count, fates, given, stays))

    def _keep(self, part: Part) -> Iterator[Any]:
        loops = self._twin.loops
        rows = loops.looked_at(part.fates, part.first, part.end)
        try:
            columns = decoded(part.stretch, rows, self._twin) if len(rows) else None
        except ProtocolError:
            if len(rows) == 1:
                raise
            middle = int(rows[len(rows) // 2])
            yield from self._keep(part._replace(end=middle))
            yield from self._keep(part._replace(first=middle))
        else:
            yield loops.kept(self, part, columns)

    # Markers

    def _keep_marker(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        ending = read_ending(batch, header)
        may_go, aborted = self._transactions.meet_marker(header, ending)
        if aborted is not None:
            self.aborted.append(aborted)
        if not may_go:
            return batch
        horizon_ms = delete_horizon_ms(header)
        if self._is_last_of_producer(header):
            is_kept = True
        elif header.record_count == 0:
            is_kept = False
        else:
            is_kept = horizon_ms is None or self.now_ms < horizon_ms
        if not is_kept:
            return None
        if horizon_ms is not None or header.record_count == 0:
            return batch
        columns = decode(batch, check_crc=False, twin="pure")
        return batch_of_kept(header, columns, range(columns.count), self._horizon_ms)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset < 0:
            return header.is_control and header.producer_epoch == last.epoch
        return header.last_offset == last.last_offset

    # Data

    def keeps_tombstones(self, header: BatchHeader) -> bool:
        horizon_ms = delete_horizon_ms(header)
        return horizon_ms is None or self.now_ms < horizon_ms

    def batch_of(self, stretch: Stretch, index: int, columns: Columns, rows: Sequence[int]) -> Buffer:
        """With these of its records, one at least: itself, if they are all."""
        header = stretch.header(index)
        needs_horizon = delete_horizon_ms(header) is None and any(columns.value_size[row] < 0 for row in rows)
        if len(rows) == header.record_count and not needs_horizon:
            return stretch.batch(index)
        return batch_of_kept(header, columns, rows, self._horizon_ms if needs_horizon else None)
