"""What an administrator asks the transaction coordinator: DescribeTransactions and ListTransactions."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.coordinator.gather import Gather
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.shard_log import coordinator_error
from tidelog.coordinator.txn.coordinator import TransactionCoordinator
from tidelog.coordinator.txn.describe import Described, Filter, Listed, describe, list_transactions, unknown_states
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


def describe_transactions(
    coordinator: TransactionCoordinator,
    request: DescribeTransactionsRequest,
    answer: Callable[[DescribeTransactionsResponse], None],
) -> None:
    wanted = request.transactional_ids
    gather: Gather[Described] = Gather(
        len(wanted), lambda states: answer(DescribeTransactionsResponse(transaction_states=states))
    )
    for index, transactional_id in enumerate(wanted):
        _describe(coordinator, transactional_id, gather.slot(index))


def _describe(coordinator: TransactionCoordinator, transactional_id: str, answer: Callable[[Described], None]) -> None:
    def refuse(code: ErrorCode) -> Described:
        return Described(transactional_id=transactional_id, error_code=coordinator_error(code))

    shard = coordinator.find(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
    if isinstance(shard, ErrorCode):
        answer(refuse(shard))
    else:
        shard.read(
            lambda machine: describe(transactional_id, machine.value_of(transactional_id)),
            answer,
            refuse,
        )


def list_all(
    coordinator: TransactionCoordinator,
    request: ListTransactionsRequest,
    matches: Callable[[str], bool] | None,
    now: Moment,
    answer: Callable[[ListTransactionsResponse], None],
) -> None:
    """`matches` is the request's pattern, compiled."""
    if coordinator.runtime.is_loading:
        answer(ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return
    wanted = Filter.of(request, matches)
    shards = coordinator.runtime.shards()

    def finish(parts: list[list[Listed]]) -> None:
        response = ListTransactionsResponse(
            unknown_state_filters=list(unknown_states(request.state_filters)),
            transaction_states=[listed for part in parts for listed in part],
        )
        answer(response)

    gather: Gather[list[Listed]] = Gather(len(shards), finish)
    for index, shard in enumerate(shards):
        shard.read(
            lambda machine: list_transactions(machine.transactions.values(), wanted, now.wall_ms),
            gather.slot(index),
            lambda code: [],
        )
