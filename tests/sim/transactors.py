"""Scripted transactional producers of both versions, through the wire.

Version 1 adds partitions by AddPartitionsToTxn and AddOffsetsToTxn and keeps its epoch; version 2 adds by writing, and
gets another epoch with each end. Both send again, word for word, what was not answered, on another connection. After
what they cannot mend they begin a new life: InitProducerId."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection
from random import Random
from typing import Literal, TypeVar

from msgspec import Struct

from tests.sim.ledger import Ledger, Transaction
from tests.sim.peer import Peer
from tests.sim.sharing import OUT, Share
from tidelog.client.errors import BrokerError, ClientError
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.batch import TRANSACTIONAL, RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

TIMEOUT_MS = 2_000
ResponseT = TypeVar("ResponseT", bound=Struct)
Version = Literal[1, 2]

AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NETWORK_EXCEPTION,
}
ENDS_LIFE = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}


class Over(Exception):
    """This life of the producer is over; `refused` when the last request was answered so at its first try."""

    def __init__(self, reason: str, *, refused: bool) -> None:
        super().__init__(reason)
        self.refused = refused


class Transactor:
    """One life of a transactional id."""

    def __init__(
        self, ledger: Ledger, peer: Peer, random: Random, transactional_id: str, life: int, version: Version
    ) -> None:
        self.transactional_id = transactional_id
        self.life = life
        self.ledger = ledger
        self.random = random
        self.peer = peer
        self.producer_id = self.epoch = -1
        self._version: Version = version
        self._sequences: dict[TopicPartition, int] = defaultdict(int)
        self._added: set[TopicPartition] = set()
        self._wall_ms = 1_000_000

    async def start(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        sent_s = self.peer.now_s()
        answer = await self._until(request, InitProducerIdResponse, 5, lambda found: found.error_code)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.ledger.is_named(self.transactional_id, self.life, self.producer_id, self.epoch, sent_s)

    async def send(self, transaction: Transaction, at: TopicPartition, values: list[bytes]) -> None:
        self.ledger.sends(transaction, at, values)
        if self._version == 1 and at not in self._added:
            await self._add(at)
        batch = build_batch(
            [RecordInput(value, value, self._wall_ms) for value in values],
            attributes=TRANSACTIONAL,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._sequences[at],
        )
        data = ProduceRequest.PartitionProduceData(index=at.partition, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=1_000,
            topic_data=[ProduceRequest.TopicProduceData(name=at.topic, partition_data=[data])],
        )
        version = self.random.choice((9, 10)) if self._version == 1 else 12
        try:
            await self._until(request, ProduceResponse, version, _produce_code, serves="a Produce")
        except Over as over:
            if not over.refused and self._version == 1:
                # As older clients do: they abort what they do not know the fate of, and then take another epoch.
                await self.end(transaction, commit=False)
            raise
        self._sequences[at] += len(values)

    async def _add(self, at: TopicPartition) -> None:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=at.topic, partitions=[at.partition])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[topic],
        )
        await self._until(request, AddPartitionsToTxnResponse, 3, _add_code, serves="AddPartitionsToTxn")
        self._added.add(at)

    async def commit_offset(self, group: str, at: TopicPartition, offset: int, share: Share | None = None) -> None:
        """As a member of the group, where it has a share in it: then one that is out must not commit (KIP-447)."""
        if self._version == 1:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            await self._until(adding, AddOffsetsToTxnResponse, 3, lambda found: found.error_code)
        part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=at.partition, committed_offset=offset
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=at.topic, partitions=[part])],
        )
        if share is not None:
            request.member_id, request.generation_id_or_member_epoch = share.member_id, share.epoch
        version = 3 if self._version == 1 else 5
        await self._until(
            request,
            TxnOffsetCommitResponse,
            version,
            lambda found: found.topics[0].partitions[0].error_code,
            serves="TxnOffsetCommit",
            ends_life=ENDS_LIFE if share is None else ENDS_LIFE | OUT,
        )

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        if not transaction.sent:
            return
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        transaction.outcome = "committing" if commit else "aborted"
        try:
            answer = await self._until(
                request,
                EndTxnResponse,
                3 if self._version == 1 else 5,
                lambda found: found.error_code,
                serves="EndTxn" if commit else "",
            )
        except Over as over:
            if over.refused:
                transaction.outcome = "aborted"
            raise
        if commit:
            transaction.outcome = "committed"
        self._added.clear()
        if self._version == 2:
            assert (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch), "no new epoch"
            self.ledger.rollovers += answer.producer_id != self.producer_id
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()

    async def fetch_offset(self, group: str, at: TopicPartition) -> int:
        """When no transaction stands between the committed offset and the next."""
        while True:
            offset = await self.stable_offset(group, at)
            if offset is not None:
                return offset
            await asyncio.sleep(self.random.uniform(0.01, 0.1))

    async def stable_offset(self, group: str, at: TopicPartition) -> int | None:
        """None while an offset is to be committed with a transaction that has not ended."""
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(name=at.topic, partition_indexes=[at.partition])
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[topic])
        request = OffsetFetchRequest(groups=[wanted], require_stable=True)
        answer = await self._until(request, OffsetFetchResponse, 8, _fetch_code)
        found = answer.groups[0].topics[0].partitions[0]
        if found.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            self.ledger.errors["UNSTABLE_OFFSET_COMMIT"] += 1
            return None
        return max(found.committed_offset, 0)

    # asking

    async def _until(
        self,
        request: Struct,
        response: type[ResponseT],
        version: int,
        code_of: Callable[[ResponseT], int],
        serves: str = "",
        ends_life: Collection[ErrorCode] = ENDS_LIFE,
    ) -> ResponseT:
        """The same request until it is answered for good, or this life gives up."""
        is_first = True
        while True:
            sent_s = self.peer.now_s()
            try:
                answer = await self.peer.ask(request, response, version)
            except ClientError as error:
                self.ledger.errors[type(error).__name__] += 1
                is_first = False
                if self.random.random() < 0.15:
                    raise Over("it got no answer and was started anew", refused=False) from error
                await asyncio.sleep(self.random.uniform(0.0, 0.2))
                continue
            code = ErrorCode(code_of(answer))
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                if serves:
                    self.ledger.is_served(self.transactional_id, self.life, serves, sent_s)
                return answer
            self.ledger.errors[code.name] += 1
            if code in ends_life:
                raise Over(code.name, refused=is_first)
            if code not in AGAIN:
                raise BrokerError(code, f"{type(request).__name__} v{version} of {self.transactional_id}")
            # Of these only one says for sure that nothing has happened.
            is_first = is_first and code is ErrorCode.CONCURRENT_TRANSACTIONS
            await asyncio.sleep(self.random.uniform(0.01, 0.1))


def _produce_code(answer: ProduceResponse) -> int:
    return answer.responses[0].partition_responses[0].error_code


def _add_code(answer: AddPartitionsToTxnResponse) -> int:
    return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code


def _fetch_code(answer: OffsetFetchResponse) -> int:
    """One that is not stable is an answer, too."""
    group = answer.groups[0]
    code = group.error_code or group.topics[0].partitions[0].error_code
    return ErrorCode.NONE if code == ErrorCode.UNSTABLE_OFFSET_COMMIT else code
