"""What the transaction coordinator needs of the rest of the node, and what it offers to the ways of writing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tidelog.log.transactions import Marker
from tidelog.protocol.errors import ErrorCode

TopicPartition = tuple[str, int]


class Markers(Protocol):
    """Writes the markers that end a transaction to the leaders of its partitions."""

    def write(
        self,
        marker: Marker,
        partitions: Sequence[TopicPartition],
        done: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """`done` is called once, perhaps at once, with an entry for each partition: NONE when its marker is committed,
        else why it is not: UNKNOWN_TOPIC_OR_PARTITION only when the metadata know of no such partition (any more).
        Nothing is tried again here: whoever asked decides that."""
        ...


class TransactionVerifier(Protocol):
    """Asked before transactional data is appended: does it belong to a transaction that is open (KIP-890)?"""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
        done: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Without `add` (version 1) the partitions must be in the open transaction of this producer id and epoch. With
        it (version 2: Produce 12+, TxnOffsetCommit 5+) those that are not are added, and a transaction is begun if none
        is open. `done` is called once, perhaps at once, with an entry for each partition; with `add`, when that is
        committed. TRANSACTION_ABORTABLE is told as such: whoever answers a version that does not know it says
        INVALID_TXN_STATE instead. A producer that was fenced is told INVALID_PRODUCER_EPOCH, as Produce has it."""
        ...


class ProducerIdSource(Protocol):
    def take(self, done: Callable[[int | None], None]) -> None:
        """A producer id that nobody has; None when there is none to be had now. `done` may be called at once."""
        ...
