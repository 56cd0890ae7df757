"""InitProducerId (22), versions 0-5. v2 flexible, v3 resume with an epoch (KIP-360), v4 PRODUCER_FENCED, v5 TV2."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.broker.transactions import client_of, fenced_for
from tidelog.coordinator.txn.transaction import Ended, ProducerName
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(
    request: InitProducerIdRequest, ctx: RequestContext
) -> InitProducerIdResponse | Parked | asyncio.Future[Any]:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return _idempotent(ctx)
    return _transactional(request.transactional_id, request, ctx)


def _transactional(transactional_id: str, request: InitProducerIdRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()

    def answer(ended: Ended) -> None:
        if ended.code is not ErrorCode.NONE:
            parked.answer(_refused(fenced_for(ctx.version, ended.code, known_from=4)))
        else:
            parked.answer(InitProducerIdResponse(producer_id=ended.producer_id, producer_epoch=ended.producer_epoch))

    expected = None if request.producer_id == -1 else ProducerName(request.producer_id, request.producer_epoch)
    ctx.services.transaction_coordinator.init_producer_id(
        transactional_id, request.transaction_timeout_ms, expected, client_of(ctx), answer
    )
    return parked


def _idempotent(ctx: RequestContext) -> InitProducerIdResponse | asyncio.Future[Any]:
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


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


API = Api(key=22, versions=range(0, 6), handle=handle)
