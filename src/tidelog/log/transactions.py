"""Transactions that are in a log because Apache Kafka wrote it: their markers, those that were aborted (`.txnindex`),
and where the first begins that nobody has ended. New ones cannot be written yet."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Buffer, Disk
from tidelog.log.names import TXN_INDEX, segment_name
from tidelog.protocol.batch import BatchHeader, iter_headers, iter_records

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
ABORTED_ENTRY: Final = Struct(">hqqqq")
_NEVER: Final = 2**63 - 1
ABORT: Final = 0
COMMIT: Final = 1


def coordinator_epoch_of(batch: Buffer, header: BatchHeader) -> int | None:
    """The epoch in a transaction's marker; None for a control batch of another kind, or one that makes no sense."""
    try:
        record = next(iter_records(batch, header), None)
    except ProtocolError:
        return None
    if record is None or record.key is None or record.value is None:
        return None
    if len(record.key) < _KEY.size or len(record.value) < _VALUE.size:
        return None
    if _KEY.unpack_from(record.key)[1] not in (ABORT, COMMIT):
        return None
    epoch: int = _VALUE.unpack_from(record.value)[1]
    return epoch


class Marker(NamedTuple):
    """The end of a transaction in one partition, as its coordinator decided."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int
    """0, 1 or 2. With 2 the epoch is newer than that of the data (KIP-890)."""


class Aborted(NamedTuple):
    """An entry of a .txnindex file."""

    producer_id: int
    first_offset: int
    last_offset: int
    """That of the marker."""
    last_stable_offset: int
    """When the marker was written: a transaction whose marker came later begins there or behind."""


class PastTransactions:
    def __init__(self, aborted: Iterable[Aborted], first_open_offset: int) -> None:
        self.first_open_offset = first_open_offset
        """Behind every offset when all have ended."""
        self._aborted = sorted(aborted, key=lambda entry: entry.last_offset)

    def aborted_in(self, records: Buffer, offset: int) -> list[tuple[int, int]]:
        """(producer, first offset) of the aborted transactions that a reader must know of who reads these batches from
        this offset on, in the order of their markers."""
        end_offset = offset
        for _, header in iter_headers(records):
            end_offset = header.next_offset
        found: list[tuple[int, int]] = []
        if end_offset == offset:
            return found
        for entry in self._aborted[bisect_left(self._aborted, offset, key=lambda entry: entry.last_offset) :]:
            if entry.first_offset < end_offset:
                found.append((entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= end_offset:
                break
        return found


def load_transactions(
    disk: Disk, directory: str, bases: Iterable[int], end_offset: int, open_since: Iterable[int]
) -> PastTransactions | None:
    """From the .txnindex files of these segments; None, and nothing to ask at every fetch, where there is nothing."""
    aborted: list[Aborted] = []
    for base in bases:
        data = disk.read_file(f"{directory}/{segment_name(base, TXN_INDEX)}") or b""
        whole = len(data) - len(data) % ABORTED_ENTRY.size
        for version, *fields in ABORTED_ENTRY.iter_unpack(data[:whole]):
            entry = Aborted(*fields)
            # What a crash left of the index may tell of batches that are no more.
            if version == 0 and entry.last_offset < end_offset:
                aborted.append(entry)
    first_open = min((offset for offset in open_since if offset >= 0), default=_NEVER)
    return PastTransactions(aborted, first_open) if aborted or first_open != _NEVER else None
