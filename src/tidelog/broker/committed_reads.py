"""What a reader of committed records is told and waits for, beyond what every reader is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.kernel.ports import Buffer
from tidelog.log.reading import Read
from tidelog.log.transactions import end_offset_of
from tidelog.protocol.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition

ENOUGH_BYTES: Final = 1 << 62


def aborted_in(
    partition: Partition, records: Buffer, offset: int, read: Read
) -> list[FetchResponse.AbortedTransaction]:
    """Those that reach into the records, read from this offset on."""
    if not records or is_clear(partition, offset):
        return []
    return [
        FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
        for producer_id, first_offset in partition.log.aborted_between(offset, end_offset_of(records, offset), read)
    ]


def is_clear(partition: Partition, offset: int) -> bool:
    """Whether nothing was aborted from this offset on: then nobody has to look at what is read."""
    transactions = partition.log.transactions
    return transactions is None or transactions.last_aborted < offset


def holds(partition: Partition) -> bool:
    """Whether there are committed bytes that are not stable."""
    return partition.log.transactions is not None and partition.last_stable_offset < partition.high_watermark


class Held:
    """Bytes that are committed but of transactions that have not ended: a reader that waits is not woken by them. When
    they are stable, nobody counts how many they were."""

    __slots__ = ("_offsets", "_some")

    def __init__(self) -> None:
        self._offsets: dict[Partition, int] = {}
        self._some: set[Partition] = set()

    def watch(self, partition: Partition, offset: int) -> None:
        """The reader waits at the offset."""
        self._offsets[partition] = offset
        if holds(partition):
            self._some.add(partition)

    def readable(self, partition: Partition, new_bytes: int) -> int:
        """How many of the new bytes the reader may have; very many when some were held before."""
        if partition.log.transactions is None:
            return new_bytes
        if partition.last_stable_offset <= self._offsets[partition]:
            self._some.add(partition)
            return 0
        return ENOUGH_BYTES if partition in self._some else new_bytes
