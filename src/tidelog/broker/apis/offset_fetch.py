"""OffsetFetch (9), versions 1-10. v2 null means all, v6 flexible, v7 require stable, v8 several groups, v9 member
epoch, v10 topic ids."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest


def handle(request: OffsetFetchRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()
    ctx.services.groups.fetch_offsets(request, ctx.version, parked.answer)
    return parked


API = Api(key=9, versions=range(1, 11), handle=handle)
