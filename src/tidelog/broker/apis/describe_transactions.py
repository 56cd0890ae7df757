"""DescribeTransactions (65), version 0 (KIP-664)."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.coordinator.txn.administration import describe_transactions
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest


def handle(request: DescribeTransactionsRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()
    describe_transactions(ctx.services.transaction_coordinator, request, parked.answer)
    return parked


API = Api(key=65, versions=range(0, 1), handle=handle)
