"""ListTransactions (66), versions 0-2 (KIP-664). v1 by duration (KIP-994), v2 by a pattern of the id (KIP-1152)."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.coordinator.group.patterns import InvalidPattern, compile_pattern
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.txn.administration import list_all
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


def handle(request: ListTransactionsRequest, ctx: RequestContext) -> Parked | ListTransactionsResponse:
    try:
        matches = _matcher(request.transactional_id_pattern)
    except InvalidPattern:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    parked = ctx.park()
    services = ctx.services
    list_all(services.transaction_coordinator, request, matches, Moment.of(services.clock), parked.answer)
    return parked


def _matcher(text: str | None) -> Callable[[str], bool] | None:
    if not text:
        return None
    pattern = compile_pattern(text)
    return lambda name: bool(pattern.matches((name,)))


API = Api(key=66, versions=range(0, 3), handle=handle)
