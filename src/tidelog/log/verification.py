"""Which producers may begin a transaction in a partition (KIP-890): those for which the coordinator was asked.

The answer counts for one transaction. A marker that comes between the question and the first batch ends the transaction
that was asked for; a batch that came after it would stay open for ever. The lowest sequence that was asked for is
remembered until a batch is taken: of several requests on their way the first may be refused and the next verified, and
a partition that does not know the producer would take it with a gap before it.
"""

from __future__ import annotations

from typing import Final

ASKED_MAX: Final = 50_000
"""Of one partition. Who asks for more pushes out the longest known: that one is refused, and may ask again."""


class _Asked:
    __slots__ = ("adds", "epoch", "is_verified", "lowest_sequence")

    def __init__(self, epoch: int, adds: bool, lowest_sequence: int) -> None:
        self.epoch = epoch
        self.adds = adds
        self.lowest_sequence = lowest_sequence
        self.is_verified = False


class Verifications:
    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: dict[int, _Asked] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def ask(self, producer_id: int, epoch: int, sequence: int, *, adds: bool) -> None:
        """The coordinator is about to be asked for a batch that begins with this sequence. `adds`: for a client of
        version 2, whose sequences begin at 0 with each transaction."""
        known = self._asked.pop(producer_id, None)
        if known is not None and known.epoch == epoch:
            sequence = min(sequence, known.lowest_sequence)
        elif len(self._asked) >= ASKED_MAX:
            del self._asked[next(iter(self._asked))]
        self._asked[producer_id] = _Asked(epoch, adds, sequence)

    def answer(self, producer_id: int, epoch: int, *, ok: bool) -> None:
        asked = self._asked.get(producer_id)
        if asked is not None and asked.epoch == epoch:
            asked.is_verified = ok

    def is_verified(self, producer_id: int, epoch: int) -> bool:
        asked = self._asked.get(producer_id)
        return asked is not None and asked.is_verified and asked.epoch == epoch

    def may_begin(self, producer_id: int, sequence: int) -> bool:
        """Whether a batch with this sequence may be the one that begins the transaction, where nothing is known of the
        producer's batches."""
        asked = self._asked[producer_id]
        return sequence <= asked.lowest_sequence and not (asked.adds and sequence)

    def end(self, producer_id: int) -> None:
        """The transaction has begun, or ended."""
        self._asked.pop(producer_id, None)
