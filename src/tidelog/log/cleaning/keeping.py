"""What stays of a batch: the last record of every key, tombstones until their horizon, nothing that was aborted, a
marker as long as something of its transaction is there and until its horizon, the last batch of each live producer.

The rules are Kafka's. Two things it does otherwise: the marker that is the last of a live producer stays whole, because
an empty one would not tell the epoch at the next start; and batches that are not yet in the map are not touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.kernel.ports import Buffer
from tidelog.log.cleaning.batches import batch_of_kept, delete_horizon_ms, empty_batch
from tidelog.log.cleaning.keys import Keys
from tidelog.log.cleaning.order import LastBatch
from tidelog.log.cleaning.reading import Chunk, FoundBatch
from tidelog.log.cleaning.transactions import CleanedTransactions
from tidelog.log.transactions import read_ending
from tidelog.log.txn_index import Aborted
from tidelog.protocol.batch import BatchHeader, read_header


class Keeper:
    def __init__(
        self,
        keys: Keys,
        transactions: CleanedTransactions,
        producers: Mapping[int, LastBatch],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._keys = keys
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self.aborted: list[Aborted] = []
        """What the index of the cleaned segment has to tell; whoever writes that takes it from here."""

    def keep(self, chunk: Chunk, *, ends_group: bool) -> list[tuple[Buffer, BatchHeader]]:
        """What stays of the batches, in order. The last of a group stays, if only as an empty one: how far the cleaned
        segment reaches must be seen from it."""
        last_of_key = self._keys.last_of_key(chunk.columns)
        kept: list[tuple[Buffer, BatchHeader]] = []
        for index, found in enumerate(chunk.batches):
            header = found.header
            if header.is_control:
                batch = self._keep_marker(chunk, index, found)
            else:
                batch = self._keep_data(chunk, index, found, last_of_key)
            if batch is None and found.is_last and ends_group:
                batch = empty_batch(header)
            if batch is not None:
                kept.append((batch, header if batch is found.data else read_header(batch)))
        return kept

    # Markers

    def _keep_marker(self, chunk: Chunk, index: int, found: FoundBatch) -> Buffer | None:
        header, batch, _ = found
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
            is_kept = horizon_ms is None or self._now_ms < horizon_ms
        if not is_kept:
            return None
        if horizon_ms is not None or header.record_count == 0:
            return batch
        return batch_of_kept(header, chunk.columns, range(*_rows(chunk, index)), self._horizon_ms)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset < 0:
            return header.is_control and header.producer_epoch == last.epoch
        return header.last_offset == last.last_offset

    # Data

    def _keep_data(self, chunk: Chunk, index: int, found: FoundBatch, last_of_key: Any) -> Buffer | None:
        header, batch, _ = found
        is_aborted = self._transactions.meet_data(header)
        if not is_aborted and header.base_offset > self._keys.latest_offset:
            return batch
        horizon_ms = delete_horizon_ms(header)
        keeps_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        columns = chunk.columns
        rows: list[int] = []
        if not is_aborted:
            rows = self._keys.kept_rows(columns, last_of_key, *_rows(chunk, index), tombstones=keeps_tombstones)
        if not rows:
            return empty_batch(header) if self._is_last_of_producer(header) else None
        needs_horizon = horizon_ms is None and any(columns.value_size[row] < 0 for row in rows)
        if len(rows) == header.record_count and not needs_horizon:
            return batch
        return batch_of_kept(header, columns, rows, self._horizon_ms if needs_horizon else None)


def _rows(chunk: Chunk, index: int) -> tuple[int, int]:
    first_record = chunk.columns.batches.first_record
    return int(first_record[index]), int(first_record[index + 1])
