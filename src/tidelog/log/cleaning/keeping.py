"""What stays of a batch: the last record of every key, tombstones until their horizon, nothing that was aborted, a
marker as long as something of its transaction is there and until its horizon, the last batch of each live producer.

The rules are Kafka's. Two things it does otherwise: the marker that is the last of a live producer stays whole, because
an empty one would not tell the epoch at the next start; and batches that are not yet in the map are not touched.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Buffer
from tidelog.log.cleaning.batches import batch_of_kept, delete_horizon_ms, empty_batch
from tidelog.log.cleaning.offset_map import OffsetMap
from tidelog.log.cleaning.order import LastBatch
from tidelog.log.cleaning.transactions import CleanedTransactions
from tidelog.log.transactions import read_ending
from tidelog.log.txn_index import Aborted
from tidelog.protocol.batch import BatchHeader, records_payload
from tidelog.protocol.record_walk import RecordSpan, record_spans

PAYLOAD_BYTES_MAX = 1 << 29
"""Of a decompressed batch: more than any that was let in."""


class Keeper:
    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[int, LastBatch],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self.aborted: list[Aborted] = []
        """What the index of the cleaned segment has to tell; whoever writes that takes it from here."""

    def keep(self, batch: Buffer, header: BatchHeader, *, is_last: bool) -> Buffer | None:
        """The batch, less of it, or None. The last of a segment stays, if only as an empty one: how far the segment
        reaches must be seen from it."""
        kept = self._keep_marker(batch, header) if header.is_control else self._keep_data(batch, header)
        return empty_batch(header) if kept is None and is_last else kept

    # Markers

    def _keep_marker(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
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
        payload = _payload(batch, header)
        return batch_of_kept(header, payload, list(record_spans(payload, header)), self._horizon_ms)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset < 0:
            return header.is_control and header.producer_epoch == last.epoch
        return header.last_offset == last.last_offset

    # Data

    def _keep_data(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        is_aborted = self._transactions.meet_data(header)
        if not is_aborted and header.base_offset > self._offsets.latest_offset:
            return batch
        payload = b"" if is_aborted else _payload(batch, header)
        kept = [] if is_aborted else self._kept_records(payload, header)
        if not kept:
            return empty_batch(header) if self._is_last_of_producer(header) else None
        needs_horizon = delete_horizon_ms(header) is None and any(span.value_size < 0 for span in kept)
        if len(kept) == header.record_count and not needs_horizon:
            return batch
        return batch_of_kept(header, payload, kept, self._horizon_ms if needs_horizon else None)

    def _kept_records(self, payload: bytes, header: BatchHeader) -> list[RecordSpan]:
        get, base_offset = self._offsets.get, header.base_offset
        horizon_ms = delete_horizon_ms(header)
        keeps_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        kept = []
        for span in record_spans(payload, header):
            if span.key_size < 0 or (span.value_size < 0 and not keeps_tombstones):
                continue
            if get(payload[span.key_start : span.key_start + span.key_size]) <= base_offset + span.offset_delta:
                kept.append(span)
        return kept


def _payload(batch: Buffer, header: BatchHeader) -> bytes:
    try:
        return bytes(records_payload(batch, header, PAYLOAD_BYTES_MAX))
    except ProtocolError as error:
        raise ProtocolError(f"the batch at offset {header.base_offset}: {error}") from None
