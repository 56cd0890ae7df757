"""ConsumerGroupHeartbeat (68), versions 0-1: joining, leaving and being led to an assignment (KIP-848). v1 the member
makes its own id (KIP-1082), subscription by regular expression."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.coordinator.group.coordinator import Client
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def handle(request: ConsumerGroupHeartbeatRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()
    client = Client(ctx.client_id or "", ctx.client_host, ctx.connection.number, ctx.connection.abort)
    ctx.services.groups.consumer_heartbeat(request, ctx.version, client, parked.answer)
    return parked


API = Api(key=68, versions=range(0, 2), handle=handle)
