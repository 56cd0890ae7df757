"""FindCoordinator (10), versions 0-6. v1 key type, v3 flexible, v4 several keys (KIP-699), v5 TRANSACTION_ABORTABLE,
v6 share groups (KIP-932). Share groups are a later issue, and the answer says so."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.broker.api import Api
from tidelog.broker.auto_create import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, create_internal_topic
from tidelog.broker.brokers import broker_addresses
from tidelog.broker.context import RequestContext
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_TOPICS = {_GROUP: OFFSETS_TOPIC, _TRANSACTION: TRANSACTIONS_TOPIC}
_Coordinator = FindCoordinatorResponse.Coordinator


def handle(request: FindCoordinatorRequest, ctx: RequestContext) -> FindCoordinatorResponse | asyncio.Future[Any]:
    topic = _TOPICS.get(request.key_type)
    if topic is None or topic in ctx.services.image.topics:
        return _respond(request, ctx)
    # Apache refuses the very first question while it makes the topic, and clients come back after a while; here the
    # answer waits the few milliseconds.
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def respond(created: asyncio.Future[Any]) -> None:
        if created.cancelled():
            answer.cancel()
        elif (error := created.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(_respond(request, ctx))

    create_internal_topic(ctx.services, topic).add_done_callback(respond)
    return answer


def _respond(request: FindCoordinatorRequest, ctx: RequestContext) -> FindCoordinatorResponse:
    if ctx.version >= 4:
        return FindCoordinatorResponse(
            coordinators=[_find(request.key_type, key, ctx) for key in request.coordinator_keys]
        )
    found = _find(request.key_type, request.key, ctx)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(key_type: int, key: str, ctx: RequestContext) -> _Coordinator:
    missing = _Coordinator(key=key, node_id=-1, host="", port=-1)
    topic = _TOPICS.get(key_type)
    if topic is None:
        missing.error_code = ErrorCode.INVALID_REQUEST
        missing.error_message = (
            "share groups are not supported yet" if key_type == _SHARE else f"unknown coordinator type {key_type}"
        )
        return missing
    services = ctx.services
    owner = services.groups if key_type == _GROUP else services.transaction_coordinator
    state = services.image.partition(topic, owner.partition_for(key))
    for broker_id, host, port, _ in broker_addresses(ctx):
        if state is not None and broker_id == state.leader:
            return _Coordinator(key=key, node_id=broker_id, host=host, port=port, error_message=None)
    missing.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    missing.error_message = "the coordinator's partition has no leader"
    return missing


API = Api(key=10, versions=range(0, 7), handle=handle)
