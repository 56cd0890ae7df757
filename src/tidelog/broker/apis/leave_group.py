"""LeaveGroup (13), versions 0-5. v3 several members and static ones (KIP-345), v4 flexible, v5 reason."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.protocol.messages.leave_group import LeaveGroupRequest


def handle(request: LeaveGroupRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()
    ctx.services.groups.leave(request, ctx.version, parked.answer)
    return parked


API = Api(key=13, versions=range(0, 6), handle=handle)
