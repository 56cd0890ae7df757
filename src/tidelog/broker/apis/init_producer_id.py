"""InitProducerId (22), versions 0-5. v2 flexible, v3 resume with an epoch (KIP-360), v4 PRODUCER_FENCED, v5 TV2.
Without a transactional id only: transactions are a later issue, and the answer says so."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.broker.api import Api
from tidelog.broker.context import RequestContext
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(request: InitProducerIdRequest, ctx: RequestContext) -> InitProducerIdResponse | asyncio.Future[Any]:
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    producer_id = ctx.services.producer_ids.take()
    if isinstance(producer_id, int):
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def respond(taken: asyncio.Future[int]) -> None:
        if taken.cancelled() or answer.cancelled():
            answer.cancel()
        elif (error := taken.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(InitProducerIdResponse(producer_id=taken.result(), producer_epoch=0))

    producer_id.add_done_callback(respond)
    return answer


API = Api(key=22, versions=range(0, 6), handle=handle)
