"""What became of every transaction, as its producer was told, and the rules of transactions.

The outcome of one is committed (EndTxn was answered), aborted (a commit was never asked for, or refused at once) or
unknown. A reader of committed records sees nothing of a transaction before its commit was asked for, nothing of an
aborted one, in the end all of a committed one, and all or nothing of one that is unknown; each record once and in the
order it was sent. A producer that another one has replaced is not served any more."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tidelog.client.metadata import TopicPartition

Outcome = Literal["open", "committing", "committed", "aborted"]


@dataclass
class Transaction:
    name: str
    sent: list[tuple[TopicPartition, bytes]] = field(default_factory=list)
    outcome: Outcome = "open"
    """`committing` is for a commit that was asked for and not answered for good."""


class _Newest(NamedTuple):
    """Of a transactional id: the producer id and epoch that were given last, to which life, and since when."""

    name: tuple[int, int]
    life: int
    since_s: float


class Ledger:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self.cleanings = 0
        self._now_s = now_s
        self._of: dict[bytes, Transaction] = {}
        self._newest: dict[str, _Newest] = {}
        self._given: dict[str, set[tuple[int, int]]] = defaultdict(set)
        self._seen: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self.transactions: list[Transaction] = []
        self.outcomes: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.reads = 0
        self.rollovers = 0
        """How often a producer got another id, because the epochs of the one before had run out."""

    # producers

    def begins(self, name: str) -> Transaction:
        transaction = Transaction(f"{name}.{len(self.transactions)}")
        self.transactions.append(transaction)
        return transaction

    def sends(self, transaction: Transaction, at: TopicPartition, values: Iterable[bytes]) -> None:
        for value in values:
            assert value not in self._of, "values are unique"
            self._of[value] = transaction
            transaction.sent.append((at, value))

    def is_named(self, transactional_id: str, life: int, producer_id: int, epoch: int, sent_s: float) -> None:
        """InitProducerId was answered to this life of the transactional id."""
        given = self._given[transactional_id]
        assert (producer_id, epoch) not in given, f"{transactional_id}: epoch {epoch} was given twice"
        given.add((producer_id, epoch))
        newest = self._newest.get(transactional_id)
        self.rollovers += newest is not None and producer_id > newest.name[0]
        is_newer = newest is None or (producer_id, epoch) > newest.name
        assert newest is None or is_newer or sent_s < newest.since_s, (
            f"{transactional_id}: the epoch went back to {epoch}"
        )
        if is_newer:
            self._newest[transactional_id] = _Newest((producer_id, epoch), life, self._now_s())

    def is_served(self, transactional_id: str, life: int, what: str, sent_s: float) -> None:
        """A write, or an end, of this life was answered with success."""
        newest = self._newest[transactional_id]
        assert life == newest.life or sent_s <= newest.since_s, (
            f"{transactional_id}: {what} of life {life} was served, sent at {sent_s:.3f} s, "
            f"and life {newest.life} has replaced it at {newest.since_s:.3f} s"
        )

    # readers

    def is_read(self, at: TopicPartition, offset: int, value: bytes, *, committed: bool) -> None:
        self.reads += 1
        transaction = self._of.get(value)
        assert transaction is not None, f"{at}: offset {offset} holds {value!r}, which nobody wrote"
        known = self._seen[at].setdefault(offset, value)
        assert known == value, f"{at}: offset {offset} was {known!r} and is {value!r}"
        if committed:
            assert transaction.outcome in ("committing", "committed"), (
                f"{at}: {value!r} of a transaction that is {transaction.outcome} was read as committed"
            )

    def check(self, found: dict[TopicPartition, list[bytes]]) -> None:
        """All that a reader of committed records finds in the end."""
        values = Counter((at, value) for at, there in found.items() for value in there)
        assert not values or max(values.values()) == 1, f"{values.most_common(1)} is there twice"
        for transaction in self.transactions:
            there = [place for place in transaction.sent if place in values]
            if transaction.outcome == "committed":
                missing = [place for place in transaction.sent if place not in values]
                assert not missing, f"{transaction.name} was committed, and lacks {missing}"
            if there:
                assert transaction.outcome in ("committing", "committed"), (
                    f"{transaction.name} is {transaction.outcome}, and {there} is read as committed"
                )
                assert len(there) == len(transaction.sent), f"{transaction.name} is torn: {there} of {transaction.sent}"
            self.outcomes[transaction.outcome] += 1
        for at, there_now in found.items():
            self._check_order(at, there_now)

    def _check_order(self, at: TopicPartition, values: list[bytes]) -> None:
        place = {value: number for number, value in enumerate(values)}
        for transaction in self.transactions:
            order = [place[value] for where, value in transaction.sent if where == at and value in place]
            assert order == sorted(order), f"{at}: the records of {transaction.name} are out of order"
