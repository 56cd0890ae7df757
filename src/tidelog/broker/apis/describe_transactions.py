"""DescribeTransactions (65), version 0 (KIP-664)."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.broker.long_answers import answer_in_slices
from tidelog.coordinator.txn.administration import describe_transactions
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse


def handle(request: DescribeTransactionsRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()

    def answer(response: DescribeTransactionsResponse) -> None:
        answer_in_slices(ctx, parked, response, "transaction_states")

    describe_transactions(ctx.services.transaction_coordinator, request, answer)
    return parked


API = Api(key=65, versions=range(0, 1), handle=handle)
