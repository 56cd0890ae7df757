"""A consumer of one partition sends the same Fetch again and again: with another offset, or, in a session, as it was.

The request is compared with the bytes of the one before, not read; the answer is a template around the records.
Whatever is out of the ordinary (errors, aborted transactions, answers that queue) is left to apis/fetch.py, so that no
answer and no effect differs. A fetch that waits is a small object here: most fetches of a consumer at the end of the
log do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tidelog.broker.committed_reads import ENOUGH_BYTES, aborted_in, holds, is_clear
from tidelog.broker.connection import Answer, Connection, Slot
from tidelog.broker.context import Parked, RequestContext
from tidelog.broker.fetch_sessions import FetchedPartition, Fetching, FetchSession
from tidelog.broker.ledger import PARKED_PARTITION_BYTES, PARKED_REQUEST_BYTES
from tidelog.broker.metrics import TopicCounters
from tidelog.broker.template import AmbiguousMark, cut
from tidelog.kernel.errors import DiskError
from tidelog.kernel.ports import Part
from tidelog.log.errors import LogError
from tidelog.log.reading import WouldBlock, at_once
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.frame import encode_request, encode_response
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.source import write_uvarint

if TYPE_CHECKING:
    from tidelog.broker.deadlines import Deadline
    from tidelog.replication.partition import Partition

LEAST_ROOM: Final = 64 * 1024
ANSWER_BYTES_MAX: Final = 8 << 20
"""The most in one answer, which holds the loop up for some milliseconds. A client that asks for more gets it in several
answers."""
SHORT_ANSWER_BYTES: Final = 512 * 1024
"""The most while others wait for news: a megabyte, read and sent, takes the loop more than half a millisecond."""
COPIED_BYTES_MAX: Final = 4000
"""Up to here it is cheaper to copy the records into the answer than to hand the transport three pieces."""
_SESSIONS_FROM: Final = 7
_FLEXIBLE_FROM: Final = 12
_BY_ID_FROM: Final = 13
_LOG_START_FROM: Final = 5
_READ_COMMITTED: Final = 1
_PARKED_BYTES: Final = PARKED_REQUEST_BYTES + PARKED_PARTITION_BYTES
_LENGTH: Final = Struct(">i")
_CORRELATION: Final = ("i", 0x5A17C0DE)
_EPOCH: Final = ("i", 0x5A17C1DE)
_OFFSET: Final = ("q", 0x5A17C2DE5A17C3DE)
_HIGH_WATERMARK: Final = ("q", 0x5A17C4DE5A17C5DE)
_STABLE: Final = ("q", 0x5A17C6DE5A17C7DE)
_LOG_START: Final = ("q", 0x5A17C8DE5A17C9DE)
_BYTES: Final = (bytes, bytearray, memoryview)
_RECORDS: Final = b"\x5a\x17\xca\xde\x5a\x17\xcb\xde"


class Longhand(NamedTuple):
    """How apis/fetch.py does it: a fetch from its beginning, and one that has waited for long enough."""

    handle: Callable[[FetchRequest, Fetching, RequestContext], FetchResponse | Parked]
    respond: Callable[[FetchRequest, Fetching, RequestContext, Parked], FetchResponse | None]


def learn(request: FetchRequest, ctx: RequestContext, longhand: Longhand) -> FetchAgain | None:
    """What was just answered, as the pattern for the next request of the connection."""
    version = ctx.version
    if version < _LOG_START_FROM or request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        return None
    if request.forgotten_topics_data or request.cluster_id is not None:
        return None
    session = None
    if version >= _SESSIONS_FROM and request.session_epoch >= 0:
        session = ctx.services.fetch_sessions.get(request.session_id)
        if session is None or len(session.partitions) != 1:
            return None
        (fetched,) = session.partitions.values()
    elif request.session_id == 0 and len(request.topics) == 1 and len(request.topics[0].partitions) == 1:
        (topic,) = request.topics
        fetched = FetchedPartition(topic.topic, topic.topic_id, topic.partitions[0])
    else:
        return None
    if fetched.wanted.last_fetched_epoch >= 0:
        return None
    try:
        return FetchAgain(request, fetched, session, ctx, longhand)
    except AmbiguousMark:
        return None


class FetchAgain:
    __slots__ = (
        "_api",
        "_around_bytes",
        "_client_id",
        "_counters",
        "_empty",
        "_fetched",
        "_is_flexible",
        "_key",
        "_longhand",
        "_max_bytes",
        "_max_bytes_for",
        "_monotonic_s",
        "_nothing",
        "_one",
        "_partition",
        "_request",
        "_session",
        "_something",
        "_tail",
        "_version",
        "_wanted",
        "is_committed",
        "services",
    )

    def __init__(
        self,
        request: FetchRequest,
        fetched: FetchedPartition,
        session: FetchSession | None,
        ctx: RequestContext,
        longhand: Longhand,
    ) -> None:
        self.services = ctx.services
        self._api = ctx.api
        self._version = ctx.version
        self._client_id = ctx.client_id
        self._monotonic_s = ctx.services.clock.monotonic_s
        self._longhand = longhand
        self._session = session
        self._fetched = fetched
        self._wanted = fetched.wanted
        self._key = fetched.key
        self.is_committed = request.isolation_level == _READ_COMMITTED
        self._max_bytes = 0
        self._max_bytes_for: object = None
        self._partition: Partition | None = None
        self._counters = TopicCounters()
        self._request = FetchRequest(
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            isolation_level=request.isolation_level,
            session_id=request.session_id,
            session_epoch=-1 if session is None else _EPOCH[1],
            rack_id=request.rack_id,
        )
        self._cut_requests()
        self._cut_answers()

    def _cut_requests(self) -> None:
        request, wanted = self._request, self._fetched.wanted
        marks = [_CORRELATION] if self._session is None else [_CORRELATION, _EPOCH]
        self._empty = cut(encode_request(request, self._version, _CORRELATION[1], self._client_id)[4:], marks)
        offset, wanted.fetch_offset = wanted.fetch_offset, _OFFSET[1]
        topic = FetchRequest.FetchTopic(topic=self._key[0], topic_id=self._key[1], partitions=[wanted])
        request.topics = [topic]
        encoded = encode_request(request, self._version, _CORRELATION[1], self._client_id)[4:]
        request.topics = []
        wanted.fetch_offset = offset
        self._one = cut(encoded, [*marks, _OFFSET])

    def _cut_answers(self) -> None:
        data = FetchResponse.PartitionData(
            partition_index=self._fetched.index,
            high_watermark=_HIGH_WATERMARK[1],
            last_stable_offset=_STABLE[1],
            log_start_offset=_LOG_START[1],
            aborted_transactions=[] if self.is_committed else None,
            records=_RECORDS,
        )
        topic = FetchResponse.FetchableTopicResponse(topic=self._key[0], topic_id=self._key[1], partitions=[data])
        session_id = 0 if self._session is None else self._session.session_id
        response = FetchResponse(session_id=session_id, responses=[topic])
        encoded = encode_response(response, self._version, _CORRELATION[1])[4:]
        self._is_flexible = self._version >= _FLEXIBLE_FROM
        before, _, self._tail = encoded.partition(_RECORDS)
        before = before[: -1 if self._is_flexible else -4]  # without the length of the records
        layout, pieces = cut(before, [_CORRELATION, _HIGH_WATERMARK, _STABLE, _LOG_START])
        self._something = Struct(">i" + layout.format[1:]).pack, pieces
        self._around_bytes = len(before) + len(self._tail)
        layout, pieces = cut(
            encode_response(FetchResponse(session_id=session_id), self._version, _CORRELATION[1]), [_CORRELATION]
        )
        self._nothing = layout.pack, pieces

    # a request

    def __call__(self, connection: Connection, frame: memoryview) -> Answer | Literal[False] | None:
        layout, pieces = self._one
        session = self._session
        if len(frame) == layout.size:
            if session is None:
                start, correlation_id, fields, offset, rest = layout.unpack(frame)
                if (start, fields, rest) != pieces:
                    return False
                fetched = self._fresh(offset)
            else:
                start, correlation_id, fields, epoch, between, offset, rest = layout.unpack(frame)
                fetched = self._fetched
                if (start, fields, between, rest) != pieces or not self._goes_on(session, epoch):
                    return False
                fetched.wanted = self._wanted
                self._wanted.fetch_offset = offset
        elif session is not None and len(frame) == self._empty[0].size:
            start, correlation_id, fields, epoch, rest = self._empty[0].unpack(frame)
            fetched = self._fetched
            if (start, fields, rest) != self._empty[1] or fetched.wanted is not self._wanted:
                return False
            if not self._goes_on(session, epoch):
                return False
        else:
            return False
        if session is not None:
            self.services.fetch_sessions.advance(session, connection.received_s)
        partition = self._find()
        if partition is None or connection.answers_wait or (records := self._read(partition, fetched)) is None:
            return self._handle_longhand(fetched, connection, correlation_id)
        missing = self._request.min_bytes - len(records)
        if missing <= 0 or self._request.max_wait_ms <= 0 or self.services.ledger.parked_bytes.is_full:
            return self.encode(records, fetched, partition, correlation_id, connection.received_s)
        waiting = Waiting(self, connection, correlation_id, fetched, missing)
        waiting.watch(partition, self._request.max_wait_ms)
        return None

    def _fresh(self, offset: int) -> FetchedPartition:
        known = self._fetched.wanted
        topic, topic_id, index = self._key
        wanted = FetchRequest.FetchPartition(
            partition=index,
            current_leader_epoch=known.current_leader_epoch,
            fetch_offset=offset,
            log_start_offset=known.log_start_offset,
            partition_max_bytes=known.partition_max_bytes,
        )
        return FetchedPartition(topic, topic_id, wanted)

    def _goes_on(self, session: FetchSession, epoch: int) -> bool:
        """The session is there, is asked in order, and is about the one partition."""
        return (
            session.epoch == epoch
            and len(session.partitions) == 1
            and session.partitions.get(self._key) is self._fetched
            and self.services.fetch_sessions.get(session.session_id) is session
        )

    def _find(self) -> Partition | None:
        topic, topic_id, index = self._key
        if self._version >= _BY_ID_FROM:
            partition = self.services.partitions.get_by_id(topic_id, index)
        else:
            partition = self.services.partitions.get(topic, index)
        if partition is None or partition.failure != ErrorCode.NONE:
            return None
        if partition is not self._partition:
            self._partition = partition
            self._counters = self.services.metrics.topic(partition.topic)
        return partition

    def _read(self, partition: Partition, fetched: FetchedPartition) -> Part | None:
        """None when there is more to it: something is wrong, or not in memory."""
        wanted = fetched.wanted
        epoch = wanted.current_leader_epoch
        if epoch >= 0 and epoch != partition.leader_epoch:
            return None
        offset = wanted.fetch_offset
        if offset == partition.high_watermark:
            self._counters.fetches += 1
            return b""
        config = self.services.config.values
        if config is not self._max_bytes_for:
            self._max_bytes_for = config
            limit = self.services.config.integer("fetch.max.bytes")
            self._max_bytes = min(self._request.max_bytes, limit, ANSWER_BYTES_MAX)
        answers = self.services.ledger.answer_bytes
        room = min(self._max_bytes, wanted.partition_max_bytes, max((answers.limit - answers.used) // 2, LEAST_ROOM))
        if room > SHORT_ANSWER_BYTES and self.services.ledger.parked_bytes.used:
            room = SHORT_ANSWER_BYTES
        committed = self.is_committed
        try:
            found = partition.read(
                offset,
                room,
                min_one_batch=True,
                committed=committed,
                read=at_once,
                lend=not committed or is_clear(partition, offset),
            )
            if committed and aborted_in(partition, found.data, offset, at_once):
                return None
        except (LogError, DiskError, WouldBlock):
            return None
        self._counters.fetches += 1
        return found.lent or found.data

    # an answer

    def make(self, waiting: Waiting) -> Answer | None:
        """The answer of one that has waited."""
        partition = self._find()
        if partition is None or (records := self._read(partition, waiting.fetched)) is None:
            return self._respond_longhand(waiting)
        return self.encode(records, waiting.fetched, partition, waiting.correlation_id, waiting.received_s)

    def encode(
        self, records: Part, fetched: FetchedPartition, partition: Partition, correlation_id: int, received_s: float
    ) -> Answer:
        high_watermark, log_start = partition.high_watermark, partition.log.log_start_offset
        api = self._api
        api.count += 1
        api.seconds += self._monotonic_s() - received_s
        size = len(records)
        if self._session is not None:
            # What FetchSession.select says and remembers, for the one partition that the session has.
            if not size and fetched.high_watermark == high_watermark and fetched.log_start_offset == log_start:
                pack, (start, rest) = self._nothing
                return pack(start, correlation_id, rest)
            fetched.high_watermark = high_watermark
            fetched.log_start_offset = log_start
        self._counters.bytes_out += size
        if not self._is_flexible:
            length = _LENGTH.pack(size)
        elif size < 127:
            length = bytes((size + 1,))
        else:
            length = write_uvarint(size + 1)
        tail = self._tail
        pack_head, (start, topic, a, b, rest) = self._something
        head = pack_head(
            self._around_bytes + len(length) + size,
            start,
            correlation_id,
            topic,
            high_watermark,
            a,
            high_watermark if partition.log.transactions is None else partition.last_stable_offset,
            b,
            log_start,
            rest,
        )
        if size <= COPIED_BYTES_MAX and isinstance(records, _BYTES):
            return b"".join((head, length, records, tail))
        return (head + length, records, tail)

    # the long way

    def _handle_longhand(self, fetched: FetchedPartition, connection: Connection, correlation_id: int) -> Answer | None:
        ctx = self.context(connection, correlation_id, connection.received_s)
        response = self._longhand.handle(self._request, self._fetching(fetched), ctx)
        if isinstance(response, Parked):
            return None
        ctx.services.metrics.answered(ctx.api, ctx.received_s)
        return ctx.encode(response)

    def _respond_longhand(self, waiting: Waiting) -> Answer | None:
        ctx = self.context(waiting.connection, waiting.correlation_id, waiting.received_s)
        parked = Parked(ctx, waiting.slot)
        response = self._longhand.respond(self._request, self._fetching(waiting.fetched), ctx, parked)
        if response is None:
            return None
        ctx.services.metrics.answered(ctx.api, ctx.received_s)
        return ctx.encode(response)

    def _fetching(self, fetched: FetchedPartition) -> Fetching:
        return Fetching([fetched], self._session, incremental=self._session is not None)

    def context(self, connection: Connection, correlation_id: int, received_s: float) -> RequestContext:
        return RequestContext(
            self.services, connection, self._api, self._version, correlation_id, self._client_id, received_s
        )


class Waiting:
    """One fetch that found too little."""

    __slots__ = (
        "_again",
        "_deadline",
        "_is_held",
        "_is_woken",
        "_missing",
        "_partition",
        "connection",
        "correlation_id",
        "fetched",
        "received_s",
        "slot",
    )

    def __init__(
        self, again: FetchAgain, connection: Connection, correlation_id: int, fetched: FetchedPartition, missing: int
    ) -> None:
        self._again = again
        self._missing = missing
        self._is_held = False
        self._is_woken = False
        self._partition: Partition | None = None
        self._deadline: Deadline | None = None
        self.slot: Slot = connection.park()
        self.slot.on_drop = self._forget
        self.connection = connection
        self.correlation_id = correlation_id
        self.fetched = fetched
        self.received_s = connection.received_s

    def watch(self, partition: Partition, max_wait_ms: int) -> None:
        services = self._again.services
        services.ledger.parked_bytes.used += _PARKED_BYTES
        self._deadline = services.deadlines.after(max_wait_ms / 1000, self._complete)
        self._partition = partition
        partition.add_waiter(self._on_append)
        self._is_held = self._again.is_committed and holds(partition)

    def _on_append(self, partition: Partition, new_bytes: int) -> None:
        if self._again.is_committed and partition.log.transactions is not None and new_bytes:
            if partition.last_stable_offset <= self.fetched.wanted.fetch_offset:
                # Of a transaction that is open: it would find nothing that it may read.
                self._is_held = True
                return
            new_bytes = ENOUGH_BYTES if self._is_held else new_bytes
        self._missing -= new_bytes
        if (self._missing <= 0 or new_bytes == 0) and not self._is_woken:
            # After this turn of the loop: what else the same wake-up appends goes into the same answer.
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._complete)

    def _complete(self) -> None:
        if self._partition is not None:
            self._unwatch()
            self.slot.fill_in_turn(self._make)

    def _make(self) -> Sequence[Part] | None:
        services = self._again.services
        services.ledger.parked_bytes.used -= _PARKED_BYTES
        try:
            answer = self._again.make(self)
        except Exception as error:
            services.failed(error, self._again.context(self.connection, self.correlation_id, self.received_s))
            return ()
        return (answer,) if isinstance(answer, bytes) else answer

    def _forget(self) -> None:
        """The connection is gone."""
        self._unwatch()
        self._again.services.ledger.parked_bytes.used -= _PARKED_BYTES

    def _unwatch(self) -> None:
        if self._partition is not None:
            self._partition.remove_waiter(self._on_append)
            self._partition = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
