"""Which producers may begin a transaction in a partition (KIP-890): those for which the coordinator was asked.

The answer counts for one transaction. A marker that comes between the question and the first batch ends the transaction
that was asked for; a batch that came after it would stay open for ever.
"""

from __future__ import annotations


class _Asked:
    __slots__ = ("adds", "epoch", "is_verified")

    def __init__(self, epoch: int, adds: bool) -> None:
        self.epoch = epoch
        self.adds = adds
        self.is_verified = False


class Verifications:
    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: dict[int, _Asked] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def ask(self, producer_id: int, epoch: int, *, adds: bool) -> None:
        """The coordinator is about to be asked. `adds`: for a client of version 2, whose sequences begin at 0 with each
        transaction."""
        self._asked[producer_id] = _Asked(epoch, adds)

    def answer(self, producer_id: int, epoch: int, *, ok: bool) -> None:
        asked = self._asked.get(producer_id)
        if asked is not None and asked.epoch == epoch:
            if ok:
                asked.is_verified = True
            else:
                del self._asked[producer_id]

    def is_verified(self, producer_id: int, epoch: int) -> bool:
        asked = self._asked.get(producer_id)
        return asked is not None and asked.is_verified and asked.epoch == epoch

    def adds(self, producer_id: int) -> bool:
        asked = self._asked.get(producer_id)
        return asked is not None and asked.adds

    def end(self, producer_id: int) -> None:
        """The transaction has begun, or ended."""
        self._asked.pop(producer_id, None)
