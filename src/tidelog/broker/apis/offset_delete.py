"""OffsetDelete (47), version 0 (KIP-496)."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.protocol.messages.offset_delete import OffsetDeleteRequest


def handle(request: OffsetDeleteRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()
    ctx.services.groups.delete_offsets(request, parked.answer)
    return parked


API = Api(key=47, versions=range(0, 1), handle=handle)
