"""SyncGroup (14), versions 0-5. v3 static members, v4 flexible, v5 protocol type and name are checked."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.protocol.messages.sync_group import SyncGroupRequest


def handle(request: SyncGroupRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()
    waiting = ctx.services.groups.sync(request, ctx.version, parked.answer)
    if waiting is not None:
        parked.when_dropped(waiting.cancel)
    return parked


API = Api(key=14, versions=range(0, 6), handle=handle)
