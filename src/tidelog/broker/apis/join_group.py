"""JoinGroup (11), versions 0-9. v1 rebalance time-out, v4 MEMBER_ID_REQUIRED (KIP-394), v5 static members (KIP-345), v6
flexible, v7 protocol type, v8 reason, v9 skip assignment. The protocols' metadata is nobody's business here."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.coordinator.group.coordinator import Client
from tidelog.protocol.messages.join_group import JoinGroupRequest


def handle(request: JoinGroupRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()
    client = Client(ctx.client_id or "", ctx.client_host, ctx.connection.number, ctx.connection.abort)
    waiting = ctx.services.groups.join(request, ctx.version, client, parked.answer)
    if waiting is not None:
        parked.when_dropped(waiting.cancel)
    return parked


API = Api(key=11, versions=range(0, 10), handle=handle)
