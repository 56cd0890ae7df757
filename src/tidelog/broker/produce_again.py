"""A producer sends the same request again and again, with other records: one batch for one partition of one topic.

Everything in front of the records is compared with the bytes of the request before, not read; the answer is a template
with four numbers. Whatever is out of the ordinary goes the way of all requests (apis/produce.py), which alone knows how
to complain, so no answer and no effect differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, Literal

from tidelog.broker.connection import Answer, Connection, Slot
from tidelog.broker.context import RequestContext
from tidelog.broker.metrics import TopicCounters
from tidelog.broker.produce_answers import refuse
from tidelog.broker.template import AmbiguousMark, cut
from tidelog.kernel.errors import DiskError
from tidelog.kernel.ports import Part
from tidelog.log.errors import LogError
from tidelog.protocol.batch import TRANSACTIONAL, BatchHeader
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.frame import encode_request, encode_response
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.protocol.uuids import ZERO_UUID
from tidelog.replication.validate import plain_header

if TYPE_CHECKING:
    from tidelog.broker.deadlines import Deadline
    from tidelog.log.partition_log import AppendResult, PartitionLog
    from tidelog.replication.partition import Partition

_Topic = ProduceResponse.TopicProduceResponse
_Partition = ProduceResponse.PartitionProduceResponse

_FLEXIBLE_FROM: Final = 9
_BY_ID_FROM: Final = 13
_NO_TAGS: Final = Struct(">HB").unpack_from
_NO_TAGS_SIZE: Final = 3
_INDEX_SIZE: Final = 4
_HEAD_SIZE: Final = 8
"""API key, version, correlation id."""
_MARKS: Final = (("i", 0x5A17C0DE), ("i", 0x5A17C1DE), ("q", 0x5A17C2DE5A17C3DE), ("q", 0x5A17C4DE5A17C5DE))


def learn(request: ProduceRequest, ctx: RequestContext) -> ProduceAgain | None:
    """What was just answered, as the pattern for the next request of the connection."""
    topics = request.topic_data
    if ctx.version < _FLEXIBLE_FROM or len(topics) != 1 or len(topics[0].partition_data) != 1:
        return None
    if request.acks not in (-1, 0, 1):
        return None
    try:
        return ProduceAgain(request, ctx)
    except AmbiguousMark:
        return None


class ProduceAgain:
    __slots__ = (
        "_acks",
        "_api",
        "_around",
        "_client_id",
        "_counters",
        "_flags",
        "_head",
        "_monotonic_s",
        "_pack",
        "_partition",
        "_partitions",
        "_pieces",
        "_prefix",
        "_records_at",
        "_timeout_ms",
        "_topic",
        "_topic_id",
        "_unpack",
        "_version",
        "_wall_ms",
        "services",
    )

    def __init__(self, request: ProduceRequest, ctx: RequestContext) -> None:
        topic = request.topic_data[0]
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._flags = 0 if request.transactional_id is None else TRANSACTIONAL
        self._topic = topic.name
        self._topic_id = topic.topic_id if ctx.version >= _BY_ID_FROM else None
        self.services = ctx.services
        self._api = ctx.api
        self._version = ctx.version
        self._client_id = ctx.client_id
        self._wall_ms = ctx.services.clock.wall_ms
        self._monotonic_s = ctx.services.clock.monotonic_s
        # The last one, with its topic's counters: a topic of the same name, made anew, has others.
        self._partition: Partition | None = None
        self._counters = TopicCounters()
        self._partitions = ctx.services.partitions
        empty = ProduceRequest(
            transactional_id=request.transactional_id,
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_data=[ProduceRequest.PartitionProduceData(records=b"")],
                )
            ],
        )
        frame = encode_request(empty, ctx.version, 0, ctx.client_id)[4:]
        self._prefix = frame[_HEAD_SIZE : -(_INDEX_SIZE + 1 + _NO_TAGS_SIZE)]
        layout = Struct(f">Ii{len(self._prefix)}si")
        self._unpack = layout.unpack_from
        self._head = int.from_bytes(frame[:4], "big")
        self._records_at = layout.size
        self._around = layout.size + _NO_TAGS_SIZE
        self._cut_answer(ctx.version)

    def _cut_answer(self, version: int) -> None:
        (_, correlation_id), (_, index), (_, base_offset), (_, log_start) = _MARKS
        answer = _Partition(index=index, base_offset=base_offset, log_start_offset=log_start)
        encoded = encode_response(self.response(answer), version, correlation_id)
        layout, self._pieces = cut(encoded, _MARKS)
        self._pack = layout.pack

    def __call__(self, connection: Connection, frame: memoryview) -> Answer | Literal[False] | None:
        at = self._records_at
        size = len(frame) - self._around - 2
        if 127 <= size < 16383:
            # The usual case: two bytes for the length, which stands for itself plus one.
            if frame[at] != (size + 1) & 127 | 128 or frame[at + 1] != (size + 1) >> 7:
                return False
            at += 2
        else:
            size, at = self._other_size(frame)
            if size < 0:
                return False
        head, correlation_id, prefix, index = self._unpack(frame)
        if head != self._head or prefix != self._prefix or _NO_TAGS(frame, at + size) != (0, 0):
            return False
        if self._topic_id is None:
            partition = self._partitions.get(self._topic, index)
        else:
            partition = self._partitions.get_by_id(self._topic_id, index)
        if partition is None:
            return False
        now_ms = self._wall_ms()
        log = partition.log
        records = frame[at : at + size]
        header = plain_header(records, log.config, now_ms, self._flags)
        if header is None or log.config.min_insync_replicas > 1:
            return False
        if self._flags and not self._goes_on(log, header):
            return False
        if partition is not self._partition:
            self._partition = partition
            self._counters = self.services.metrics.topic(log.topic)
        try:
            result = partition.append(records, header, now_ms)
        except (LogError, DiskError) as error:
            return self._refuse(error, partition, connection, correlation_id)
        counters = self._counters
        counters.produces += 1
        counters.messages_in += header.record_count
        counters.bytes_in += size
        acks = self._acks
        if acks == -1 and partition.high_watermark <= result.last_offset:
            waiting = Uncommitted(self, connection, correlation_id, partition, result)
            waiting.watch(self._timeout_ms)
            return None
        api = self._api
        api.count += 1
        api.seconds += self._monotonic_s() - connection.received_s
        if acks == 0:
            return None
        return self.encode(correlation_id, index, result.base_offset, log.log_start_offset)

    def _goes_on(self, log: PartitionLog, header: BatchHeader) -> bool:
        """Whether the transaction has begun in this partition, and nothing of its producer waits to be verified."""
        return log.producers.is_in_transaction(
            header.producer_id, header.producer_epoch
        ) and not self.services.transactional_produces.is_waiting(header.producer_id)

    def encode(self, correlation_id: int, index: int, base_offset: int, log_start_offset: int) -> bytes:
        start, topic, code, time, rest = self._pieces
        return self._pack(start, correlation_id, topic, index, code, base_offset, time, log_start_offset, rest)

    def _other_size(self, frame: memoryview) -> tuple[int, int]:
        """Size and position of records that are smaller or larger; -1 when their length is written otherwise."""
        at = self._records_at
        size = len(frame) - self._around - 1
        if 0 <= size < 127:
            return (size, at + 1) if frame[at] == size + 1 else (-1, 0)
        size -= 2
        if not 16383 <= size < 2097151:
            return -1, 0
        wanted = ((size + 1) & 127 | 128, (size + 1) >> 7 & 127 | 128, (size + 1) >> 14)
        return (size, at + 3) if tuple(frame[at : at + 3]) == wanted else (-1, 0)

    def _refuse(
        self, error: LogError | DiskError, partition: Partition, connection: Connection, correlation_id: int
    ) -> Answer | None:
        ctx = self.context(connection, correlation_id, connection.received_s)
        ctx.services.metrics.topic(partition.topic).produces += 1
        response = self.response(refuse(error, partition, ctx))
        ctx.services.metrics.answered(ctx.api, ctx.received_s)
        if self._acks == 0:
            connection.close()
            return None
        return ctx.encode(response)

    def response(self, answer: _Partition) -> ProduceResponse:
        topic = _Topic(name=self._topic, topic_id=self._topic_id or ZERO_UUID, partition_responses=[answer])
        return ProduceResponse(responses=[topic])

    def answered(self, received_s: float) -> None:
        api = self._api
        api.count += 1
        api.seconds += self._monotonic_s() - received_s

    def context(self, connection: Connection, correlation_id: int, received_s: float) -> RequestContext:
        return RequestContext(
            self.services, connection, self._api, self._version, correlation_id, self._client_id, received_s
        )


class Uncommitted:
    """One batch with acks=all that is written and not yet committed: what `Committing` is for a whole request."""

    __slots__ = (
        "_again",
        "_base_offset",
        "_connection",
        "_correlation_id",
        "_deadline",
        "_end_offset",
        "_log_start_offset",
        "_partition",
        "_received_s",
        "_slot",
    )

    def __init__(
        self,
        again: ProduceAgain,
        connection: Connection,
        correlation_id: int,
        partition: Partition,
        result: AppendResult,
    ) -> None:
        self._again = again
        self._connection = connection
        self._correlation_id = correlation_id
        self._received_s = connection.received_s
        self._partition = partition
        self._base_offset = result.base_offset
        self._end_offset = result.last_offset + 1
        self._log_start_offset = partition.log.log_start_offset
        self._deadline: Deadline | None = None
        slot = connection.park()
        slot.on_drop = self._end
        self._slot: Slot | None = slot

    def watch(self, timeout_ms: int) -> None:
        self._deadline = self._again.services.deadlines.after(max(timeout_ms, 0) / 1000, self._timed_out)
        self._partition.when_committed(self._end_offset, self._committed)

    def _timed_out(self) -> None:
        # What was written stays, and may yet be committed: the client cannot know.
        is_committed = self._partition.high_watermark >= self._end_offset
        self._committed(ErrorCode.NONE if is_committed else ErrorCode.REQUEST_TIMED_OUT)

    def _committed(self, code: ErrorCode) -> None:
        slot, again = self._slot, self._again
        if slot is None:
            return
        self._end()
        index = self._partition.log.partition
        if code is ErrorCode.NONE:
            answer: Sequence[Part] = (
                again.encode(self._correlation_id, index, self._base_offset, self._log_start_offset),
            )
        else:
            ctx = again.context(self._connection, self._correlation_id, self._received_s)
            failed = _Partition(index=index, error_code=code, base_offset=-1, log_start_offset=-1)
            answer = ctx.encode(again.response(failed))
        slot.fill(answer)
        again.answered(self._received_s)

    def _end(self) -> None:
        self._slot = None
        if self._deadline is not None:
            self._deadline.cancel()
