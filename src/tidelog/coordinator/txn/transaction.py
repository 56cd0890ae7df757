"""One transactional id: its durable value, and what is only in memory beside it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.txn.ports import TopicPartition
from tidelog.coordinator.txn.records import NO_EPOCH, TransactionRecord, TransactionValue
from tidelog.protocol.errors import ErrorCode

EPOCH_MAX: Final = 32_767
"""Given to nobody: only a fence goes that far, and whoever comes next gets a new producer id."""
LAST_EPOCH: Final = EPOCH_MAX - 1


class Transaction:
    __slots__ = (
        "attempt",
        "is_sending",
        "last_epoch",
        "newest_connection",
        "retries",
        "timeout_at_ms",
        "transactional_id",
        "unmarked",
        "value",
        "waiting",
    )

    def __init__(self, transactional_id: str, value: TransactionValue) -> None:
        self.transactional_id = transactional_id
        self.value = value
        self.last_epoch = NO_EPOCH
        self.newest_connection = 0
        """The youngest connection that spoke for the current producer. See docs/transactions.md."""
        self.timeout_at_ms = 0
        self.waiting: deque[Callable[[bool], None]] = deque()
        """Requests that go on when the markers are written (True), or are sent away (False)."""
        self.unmarked: frozenset[TopicPartition] | None = None
        """Partitions whose marker is missing, while the transaction is completing and was sent once."""
        self.is_sending = False
        self.attempt = 0
        self.retries = 0


class ProducerName(NamedTuple):
    """A producer id and the epoch of it, as a client gives them."""

    id: int
    epoch: int


class Ended(NamedTuple):
    """The answer to EndTxn and InitProducerId."""

    code: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


class Needs(NamedTuple):
    """No decision yet: it takes a producer id (`producer_id`), or the markers of the transaction before."""

    producer_id: bool = False


WAITS: Final = Needs()
WANTS_ID: Final = Needs(producer_id=True)

EndDecision = Decision[TransactionRecord, Ended]


def refused(code: ErrorCode) -> EndDecision:
    return Decision((), Ended(code))
