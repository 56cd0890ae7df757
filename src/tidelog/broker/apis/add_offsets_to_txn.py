"""AddOffsetsToTxn (25), versions 0-4. v2 PRODUCER_FENCED (KIP-588), v3 flexible, v4 TRANSACTION_ABORTABLE. Only clients
of transaction version 1 send it: it adds the group's partition of `__consumer_offsets`."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.broker.transactions import client_of, fenced_for
from tidelog.coordinator.txn.transaction import ProducerName
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


def handle(request: AddOffsetsToTxnRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()

    def answer(code: ErrorCode) -> None:
        parked.answer(AddOffsetsToTxnResponse(error_code=fenced_for(ctx.version, code, known_from=2)))

    ctx.services.transaction_coordinator.add_partitions(
        request.transactional_id,
        ProducerName(request.producer_id, request.producer_epoch),
        [("__consumer_offsets", ctx.services.groups.partition_for(request.group_id))],
        0,
        client_of(ctx),
        answer,
    )
    return parked


API = Api(key=25, versions=range(0, 5), handle=handle)
