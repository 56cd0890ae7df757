"""Which batches of a fetch belong to aborted transactions, and which are markers: from headers, in their order."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.client.fetching import AbortedTransaction
from tidelog.protocol.batch import BatchHeader


class Aborted:
    """Follows the aborted transactions of one fetch: each begins at its first offset and ends with its marker."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(transactions, key=lambda one: one.first_offset, reverse=True)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader) -> bool:
        """Whether an application must not see the batch, which comes next in the log."""
        if not (header.is_control or header.is_transactional):
            return False
        return self.hides_part(header.last_offset, header.producer_id, header.is_control)

    def hides_part(self, last_offset: int, producer_id: int, is_control: bool) -> bool:
        """The same of a batch that is a marker or part of a transaction, for who has headers as columns."""
        while self._coming and self._coming[-1].first_offset <= last_offset:
            self._open.add(self._coming.pop().producer_id)
        if is_control:
            # Commit or abort: either way the producer's transaction ends here.
            self._open.discard(producer_id)
            return True
        return producer_id in self._open
