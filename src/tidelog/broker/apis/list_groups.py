"""ListGroups (16), versions 0-5. v3 flexible, v4 states (KIP-518), v5 types (KIP-848)."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.protocol.messages.list_groups import ListGroupsRequest


def handle(request: ListGroupsRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()
    ctx.services.groups.list_groups(request, ctx.version, parked.answer)
    return parked


API = Api(key=16, versions=range(0, 6), handle=handle)
