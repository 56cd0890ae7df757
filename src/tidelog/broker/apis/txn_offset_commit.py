"""TxnOffsetCommit (28), versions 0-5. v2 leader epoch, v3 flexible and members (KIP-447), v4 TRANSACTION_ABORTABLE, v5
adds the group's partition to the transaction (KIP-890).

The transaction is verified for the partition of `__consumer_offsets` that owns the group, as for any other partition.
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.coordinator.group.txn_commit import TxnCommit
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tidelog.replication.partition import Partition

_OFFSETS_TOPIC: Final = "__consumer_offsets"
_ADDS_FROM: Final = 5


def handle(request: TxnOffsetCommitRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()
    groups = ctx.services.groups
    commit = groups.begin_transactional_commit(request, ctx.version)
    error = _check(request)
    if error is not ErrorCode.NONE or not commit.accepted:
        parked.answer(commit.refuse(error))
        return parked
    index = groups.partition_for(request.group_id)
    partition = ctx.services.partitions.get(_OFFSETS_TOPIC, index)
    if partition is None:
        parked.answer(commit.refuse(ErrorCode.NOT_COORDINATOR))
    elif partition.log.producers.is_in_transaction(request.producer_id, request.producer_epoch):
        groups.commit_transactional_offsets(commit, parked.answer)
    else:
        _verify(partition, commit, ctx, parked)
    return parked


def _check(request: TxnOffsetCommitRequest) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if request.producer_id < 0 or request.producer_epoch < 0:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE


def _verify(partition: Partition, commit: TxnCommit, ctx: RequestContext, parked: Parked) -> None:
    request = commit.request
    verifier = ctx.services.transactions
    if verifier is None:
        parked.answer(commit.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    name = (partition.topic, partition.index)
    adds = ctx.version >= _ADDS_FROM
    partition.log.producers.verifications.ask(request.producer_id, request.producer_epoch, 0, adds=adds)

    def verified(codes: dict[tuple[str, int], ErrorCode]) -> None:
        code = codes.get(name, ErrorCode.UNKNOWN_SERVER_ERROR)
        is_ok = code is ErrorCode.NONE
        partition.log.producers.verifications.answer(request.producer_id, request.producer_epoch, ok=is_ok)
        if is_ok:
            ctx.services.groups.commit_transactional_offsets(commit, parked.answer)
        else:
            parked.answer(commit.refuse(code))

    verifier.verify(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [name],
        add=adds,
        done=lambda codes: verified(dict(codes)),
    )


API = Api(key=28, versions=range(0, 6), handle=handle)
