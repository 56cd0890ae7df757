"""What the handlers of the transactional APIs share: who asks, and the errors that old versions know."""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.coordinator.txn.coordinator import Client
from tidelog.protocol.errors import ErrorCode


def client_of(ctx: RequestContext) -> Client:
    return Client(ctx.connection.number, ctx.connection.abort)


def fenced_for(version: int, code: ErrorCode, *, known_from: int) -> ErrorCode:
    """Clients of before KIP-588 do not know PRODUCER_FENCED."""
    if code is ErrorCode.PRODUCER_FENCED and version < known_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
