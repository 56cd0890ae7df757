"""Heartbeat (12), versions 0-4. v1 throttle, v3 static members (KIP-345), v4 flexible."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import RequestContext
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(request: HeartbeatRequest, ctx: RequestContext) -> HeartbeatResponse:
    return ctx.services.groups.heartbeat(request)


API = Api(key=12, versions=range(0, 5), handle=handle)
