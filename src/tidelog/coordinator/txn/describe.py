"""DescribeTransactions and ListTransactions: what is known of transactional ids, as Kafka tells it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tidelog.coordinator.chores import Work
from tidelog.coordinator.group.patterns import Pattern
from tidelog.coordinator.txn.records import TransactionValue, group_by_topic
from tidelog.coordinator.txn.state import BY_LABEL, TransactionState
from tidelog.coordinator.txn.transaction import Transaction
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsResponse
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

Described = DescribeTransactionsResponse.TransactionState
Listed = ListTransactionsResponse.TransactionState


def describe(transactional_id: str, value: TransactionValue | None) -> Described:
    if value is None:
        return Described(transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return Described(
        transactional_id=transactional_id,
        transaction_state=value.state.label,
        transaction_timeout_ms=value.timeout_ms,
        transaction_start_time_ms=value.start_ms,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        topics=[
            DescribeTransactionsResponse.TopicData(topic=topic, partitions=indexes)
            for topic, indexes in group_by_topic(value.partitions).items()
        ],
    )


class Filter(NamedTuple):
    """An empty one lets everything through."""

    states: frozenset[TransactionState] | None
    producer_ids: frozenset[int]
    duration_ms: int
    pattern: Pattern | None

    @classmethod
    def of(cls, request: ListTransactionsRequest, pattern: Pattern | None) -> Filter:
        known = frozenset(BY_LABEL[name] for name in request.state_filters if name in BY_LABEL)
        return cls(
            known if request.state_filters else None,
            frozenset(request.producer_id_filters),
            request.duration_filter,
            pattern,
        )

    def passes(self, transaction: Transaction, wall_ms: int) -> bool:
        value = transaction.value
        if self.producer_ids and value.producer_id not in self.producer_ids:
            return False
        if self.states is not None and value.state not in self.states:
            return False
        if self.duration_ms >= 0 and wall_ms - value.start_ms <= self.duration_ms:
            return False
        return self.pattern is None or self.pattern.matches(transaction.transactional_id)

    def cost(self, transaction: Transaction) -> int:
        return 2 if self.pattern is None else 2 + self.pattern.cost(transaction.transactional_id)


def list_transactions(transactions: Iterable[Transaction], wanted: Filter, wall_ms: int) -> Work[list[Listed]]:
    """Those that are there at the first step, each as it is when its turn comes."""
    listed: list[Listed] = []
    for transaction in list(transactions):
        if wanted.passes(transaction, wall_ms):
            value = transaction.value
            listed.append(
                Listed(
                    transactional_id=transaction.transactional_id,
                    producer_id=value.producer_id,
                    transaction_state=value.state.label,
                )
            )
        yield wanted.cost(transaction)
    return listed


def unknown_states(names: Sequence[str]) -> Iterator[str]:
    return (name for name in names if name not in BY_LABEL)
