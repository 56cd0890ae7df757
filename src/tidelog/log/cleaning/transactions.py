"""Transactions as a cleaner meets them: whose data goes because it was aborted, and which marker nobody needs any more.

Data comes before its marker, and the cleaner goes through the log from its start, so it has met all that is left of a
transaction when it meets the marker.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from tidelog.log.transactions import Ending
from tidelog.log.txn_index import Aborted
from tidelog.protocol.batch import BatchHeader


class AbortedRanges:
    """From the indexes of aborted transactions, in any order."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._by_producer: dict[int, list[Aborted]] = {}
        for entry in aborted:
            self._by_producer.setdefault(entry.producer_id, []).append(entry)
        for entries in self._by_producer.values():
            entries.sort(key=lambda entry: entry.first_offset)

    def find(self, producer_id: int, offset: int) -> Aborted | None:
        """The aborted transaction of the producer that the offset is in; its marker is in it too."""
        entries = self._by_producer.get(producer_id)
        if entries is None:
            return None
        number = bisect_right(entries, offset, key=lambda entry: entry.first_offset) - 1
        return entries[number] if number >= 0 and offset <= entries[number].last_offset else None

    def holds(self, header: BatchHeader) -> bool:
        """Whether the batch is data of an aborted transaction."""
        return header.is_transactional and self.find(header.producer_id, header.base_offset) is not None


class CleanedTransactions:
    """What was met on the way, batch by batch in order."""

    def __init__(self, aborted: AbortedRanges) -> None:
        self._aborted = aborted
        self._met: set[Aborted] = set()
        """Aborted, with data that was still there."""
        self._open: set[int] = set()
        """Producers whose data was met and whose marker was not."""

    def meet_data(self, header: BatchHeader) -> bool:
        """Whether it goes because it was aborted."""
        if not header.is_transactional:
            return False
        aborted = self._aborted.find(header.producer_id, header.base_offset)
        if aborted is not None:
            self._met.add(aborted)
            return True
        self._open.add(header.producer_id)
        return False

    def meet_marker(self, header: BatchHeader, ending: Ending | None) -> tuple[bool, Aborted | None]:
        """Whether nothing is left of its transaction, and what the index has to tell of it if something is. What is
        dropped in this very cleaning still counts: a reader may have begun with it."""
        if ending is None:
            return header.record_count == 0, None
        has_data = header.producer_id in self._open
        self._open.discard(header.producer_id)
        if ending.committed:
            return not has_data, None
        aborted = self._aborted.find(header.producer_id, header.base_offset)
        if aborted is not None and aborted in self._met:
            self._met.discard(aborted)
            return False, aborted
        return not has_data, None
