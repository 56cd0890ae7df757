"""The states of a transactional id, with Kafka's numbers and names."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7
    """Apache's name for a fence that is under way. Nobody ever writes it: here a fence is one decision."""

    @property
    def label(self) -> str:
        """As DescribeTransactions and the tools write it."""
        return _LABELS[self]

    @property
    def is_completing(self) -> bool:
        """Decided, and markers are on their way."""
        return self is TransactionState.PREPARE_COMMIT or self is TransactionState.PREPARE_ABORT

    @property
    def is_idle(self) -> bool:
        return self in _IDLE


_LABELS: Final = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}
BY_LABEL: Final = {label: state for state, label in _LABELS.items()}
_IDLE: Final = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
