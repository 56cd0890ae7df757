"""ListTransactions (66), versions 0-2 (KIP-664). v1 by duration (KIP-994), v2 by a pattern of the id (KIP-1152)."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.broker.long_answers import answer_in_slices
from tidelog.coordinator.group.patterns import InvalidPattern, compile_pattern
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.txn.administration import list_all
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


def handle(request: ListTransactionsRequest, ctx: RequestContext) -> Parked | ListTransactionsResponse:
    text = request.transactional_id_pattern
    try:
        pattern = compile_pattern(text) if text else None
    except InvalidPattern:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    parked = ctx.park()
    services = ctx.services

    def answer(response: ListTransactionsResponse) -> None:
        answer_in_slices(ctx, parked, response, "transaction_states")

    list_all(services.transaction_coordinator, request, pattern, Moment.of(services.clock), answer)
    return parked


API = Api(key=66, versions=range(0, 3), handle=handle)
