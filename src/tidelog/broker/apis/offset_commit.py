"""OffsetCommit (8), versions 2-10. v6 leader epoch, v7 static members, v8 flexible, v9 member epoch (KIP-848), v10
topic ids."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest


def handle(request: OffsetCommitRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()
    ctx.services.groups.commit_offsets(request, ctx.version, parked.answer)
    return parked


API = Api(key=8, versions=range(2, 11), handle=handle)
