"""EndTxn (26), versions 0-5. v2 PRODUCER_FENCED (KIP-588), v3 flexible, v4 TRANSACTION_ABORTABLE, v5 the epoch goes up
with each transaction and stands in the answer (KIP-890)."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.broker.transactions import client_of, fenced_for
from tidelog.coordinator.txn.transaction import Ended, ProducerName
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

_BUMPS_EPOCH_FROM = 5


def handle(request: EndTxnRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()
    is_second = ctx.version >= _BUMPS_EPOCH_FROM

    def answer(ended: Ended) -> None:
        response = EndTxnResponse(error_code=fenced_for(ctx.version, ended.code, known_from=2))
        if is_second and ended.code is ErrorCode.NONE:
            response.producer_id, response.producer_epoch = ended.producer_id, ended.producer_epoch
        parked.answer(response)

    ctx.services.transaction_coordinator.end_transaction(
        request.transactional_id,
        ProducerName(request.producer_id, request.producer_epoch),
        request.committed,
        2 if is_second else 0,
        client_of(ctx),
        answer,
    )
    return parked


API = Api(key=26, versions=range(0, 6), handle=handle)
