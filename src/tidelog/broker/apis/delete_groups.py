"""DeleteGroups (42), versions 0-2. v2 flexible."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest


def handle(request: DeleteGroupsRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()
    ctx.services.groups.delete_groups(request, parked.answer)
    return parked


API = Api(key=42, versions=range(0, 3), handle=handle)
