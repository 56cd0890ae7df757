"""What an administrator asks the transaction coordinator: DescribeTransactions and ListTransactions.

There may be tens of thousands of transactional ids, so both are answered in slices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from tidelog.coordinator.chores import Work
from tidelog.coordinator.gather import Gather
from tidelog.coordinator.group.patterns import Pattern
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.shard_log import coordinator_error
from tidelog.coordinator.txn.coordinator import TransactionCoordinator
from tidelog.coordinator.txn.describe import Described, Filter, Listed, describe, list_transactions, unknown_states
from tidelog.coordinator.txn.machine import TransactionMachine
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

T = TypeVar("T")
_READ_COST: Final = 15
"""Of a question to the shard of one transactional id."""


def describe_transactions(
    coordinator: TransactionCoordinator,
    request: DescribeTransactionsRequest,
    answer: Callable[[DescribeTransactionsResponse], None],
) -> None:
    wanted = request.transactional_ids
    gather: Gather[Described] = Gather(
        len(wanted), lambda states: answer(DescribeTransactionsResponse(transaction_states=states))
    )

    def describing() -> Work[None]:
        for index, transactional_id in enumerate(wanted):
            yield _READ_COST + _describe(coordinator, transactional_id, gather.slot(index))

    coordinator.runtime.chores.begin(describing())


def _describe(coordinator: TransactionCoordinator, transactional_id: str, answer: Callable[[Described], None]) -> int:
    """What it cost besides."""

    def refuse(code: ErrorCode) -> Described:
        return Described(transactional_id=transactional_id, error_code=coordinator_error(code))

    shard = coordinator.find(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
    if isinstance(shard, ErrorCode):
        answer(refuse(shard))
        return 0
    value = shard.machine.value_of(transactional_id)
    shard.read(lambda machine: describe(transactional_id, value), answer, refuse)
    return 0 if value is None else len(value.partitions)


def list_all(
    coordinator: TransactionCoordinator,
    request: ListTransactionsRequest,
    pattern: Pattern | None,
    now: Moment,
    answer: Callable[[ListTransactionsResponse], None],
) -> None:
    """`pattern` is the request's, compiled."""
    if coordinator.runtime.is_loading:
        answer(ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return
    wanted = Filter.of(request, pattern)
    shards = coordinator.runtime.shards()

    def finish(parts: list[list[Listed]]) -> None:
        response = ListTransactionsResponse(
            unknown_state_filters=list(unknown_states(request.state_filters)),
            transaction_states=[listed for part in parts for listed in part],
        )
        answer(response)

    gather: Gather[list[Listed]] = Gather(len(shards), finish)

    def listing() -> Work[None]:
        for index, shard in enumerate(shards):
            listed = yield from list_transactions(shard.machine.transactions.values(), wanted, now.wall_ms)
            # When all that was seen is committed.
            shard.read(_found(listed), gather.slot(index), lambda code: [])
            yield _READ_COST

    coordinator.runtime.chores.begin(listing())


def _found(found: T) -> Callable[[TransactionMachine], T]:
    return lambda machine: found
