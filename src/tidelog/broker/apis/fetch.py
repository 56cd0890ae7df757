"""Fetch (1), versions 4-18. v5 log start, v7 sessions (KIP-227), v9 leader epoch, v11 rack, v12 flexible and divergence
(KIP-595), v13 topic ids (KIP-516), v15 replica state, v16 leader hints (KIP-951), v17 directory id, v18 follower's HW.

Batches leave as the bytes they are on disk. A fetch that finds too little waits for an append, not for a timer. One
that needs bytes which are not in memory waits for its turn in the connection, and reads them beside the loop.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final, cast

from tidelog.broker.api import Api
from tidelog.broker.cold_reads import REQUEST_BYTES_MAX
from tidelog.broker.committed_reads import Held, aborted_in, is_clear
from tidelog.broker.context import Parked, RequestContext
from tidelog.broker.deadlines import Deadline
from tidelog.broker.fetch_again import ANSWER_BYTES_MAX, LEAST_ROOM, SHORT_ANSWER_BYTES, Longhand, learn
from tidelog.broker.fetch_sessions import QUIET, FetchedPartition, Fetching
from tidelog.broker.ledger import PARKED_PARTITION_BYTES, PARKED_REQUEST_BYTES
from tidelog.kernel.errors import DiskError
from tidelog.log.errors import LogError
from tidelog.log.reading import Read, WouldBlock, at_once
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.replication.partition import Partition

_Data = FetchResponse.PartitionData
_READ_COMMITTED: Final = 1
_log = logging.getLogger("tidelog.fetch")


def handle(request: FetchRequest, ctx: RequestContext) -> FetchResponse | Parked:
    fetching = ctx.services.fetch_sessions.begin(request, ctx.version, ctx.received_s)
    if isinstance(fetching, ErrorCode):
        return FetchResponse(error_code=fetching)
    return _begin(request, fetching, ctx)


def _begin(request: FetchRequest, fetching: Fetching, ctx: RequestContext) -> FetchResponse | Parked:
    fetch = _Fetch(request, fetching, ctx)
    if ctx.connection.answers_wait:
        return fetch.start_in_turn()
    try:
        return fetch.start() or fetch.park()
    except WouldBlock:
        return fetch.answer_cold()


def _respond(request: FetchRequest, fetching: Fetching, ctx: RequestContext, parked: Parked) -> FetchResponse | None:
    return _Fetch(request, fetching, ctx).make(parked)


class _Fetch:
    """One request while it is read and, perhaps, waits."""

    __slots__ = (
        "_bytes_missing",
        "_ctx",
        "_deadline",
        "_fetching",
        "_held",
        "_is_woken",
        "_parked",
        "_parked_bytes",
        "_request",
        "_watched",
    )

    def __init__(self, request: FetchRequest, fetching: Fetching, ctx: RequestContext) -> None:
        self._request = request
        self._fetching = fetching
        self._ctx = ctx
        self._parked: Parked | None = None
        self._deadline: Deadline | None = None
        self._watched: list[Partition] = []
        self._bytes_missing = request.min_bytes
        self._held = Held() if request.isolation_level == _READ_COMMITTED else None
        self._is_woken = False
        self._parked_bytes = 0

    # reading

    def read(self) -> list[_Data]:
        """What there is; WouldBlock when some of it is not in memory."""
        room = self._room()
        results: list[_Data] = []
        nothing_yet = True
        is_incremental = self._fetching.is_incremental
        for fetched in self._fetching.partitions:
            if is_incremental and self._is_quiet(fetched):
                results.append(QUIET)
                continue
            data = self._read_partition(fetched, room, nothing_yet, at_once)
            if data.records:
                nothing_yet = False
                room = max(room - len(data.records), 0)
            results.append(data)
        return results

    def _is_quiet(self, fetched: FetchedPartition) -> bool:
        """Whether the reader is at the end and has heard of all: most partitions of most fetches."""
        services = self._ctx.services
        if self._ctx.version >= 13:
            partition = services.partitions.get_by_id(fetched.topic_id, fetched.index)
        else:
            partition = services.partitions.get(fetched.topic, fetched.index)
        if partition is None or partition.failure:
            return False
        wanted, high_watermark = fetched.wanted, partition.high_watermark
        epoch = wanted.current_leader_epoch
        if (
            wanted.fetch_offset != high_watermark
            or fetched.high_watermark != high_watermark
            or fetched.log_start_offset != partition.log.log_start_offset
            or (epoch >= 0 and epoch != partition.leader_epoch)
            or wanted.last_fetched_epoch >= 0
        ):
            return False
        services.metrics.topic(partition.log.topic).fetches += 1
        return True

    def _room(self) -> int:
        services = self._ctx.services
        room = min(self._request.max_bytes, services.config.integer("fetch.max.bytes"), ANSWER_BYTES_MAX)
        # The fuller the node is of answers that nobody takes, the smaller they become.
        room = min(room, max(services.ledger.answer_bytes.left // 2, LEAST_ROOM))
        return min(room, SHORT_ANSWER_BYTES) if services.ledger.parked_bytes.used else room

    def _find(self, fetched: FetchedPartition) -> Partition | ErrorCode:
        services = self._ctx.services
        if self._ctx.version >= 13:
            partition = services.partitions.get_by_id(fetched.topic_id, fetched.index)
            if partition is None:
                topic = services.image.topic_by_id(fetched.topic_id)
                if topic is None:
                    return ErrorCode.UNKNOWN_TOPIC_ID
                return services.partitions.why_missing(topic.name, fetched.index)
        else:
            partition = services.partitions.get(fetched.topic, fetched.index)
            if partition is None:
                return services.partitions.why_missing(fetched.topic, fetched.index)
        return partition

    def _read_partition(self, fetched: FetchedPartition, room: int, nothing_yet: bool, read: Read) -> _Data:
        partition = self._find(fetched)
        if isinstance(partition, ErrorCode):
            return _failed(fetched.index, partition)
        wanted = fetched.wanted
        code = partition.check_epoch(wanted.current_leader_epoch)
        if code != ErrorCode.NONE:
            return _failed(fetched.index, code)
        counters = self._ctx.services.metrics.topic(partition.topic)
        data = _Data(
            partition_index=fetched.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=[] if self._request.isolation_level == _READ_COMMITTED else None,
            records=b"",
        )
        try:
            if wanted.last_fetched_epoch >= 0 and _diverges(partition, wanted, data):
                return data
            committed = self._request.isolation_level == _READ_COMMITTED
            found = partition.read(
                wanted.fetch_offset,
                min(wanted.partition_max_bytes, room),
                min_one_batch=nothing_yet,
                committed=committed,
                read=read,
                lend=not committed or is_clear(partition, wanted.fetch_offset),
            )
            # Of what is lent the codec asks for nothing but its length.
            data.records = found.data if found.lent is None else cast(memoryview, found.lent)
            if committed and partition.log.transactions is not None:
                data.aborted_transactions = aborted_in(partition, found.data, wanted.fetch_offset, read)
            counters.fetches += 1
        except LogError as error:
            counters.fetches += 1
            counters.failed_fetches += 1
            return _failed(fetched.index, error.error_code)
        except DiskError as error:
            counters.fetches += 1
            counters.failed_fetches += 1
            _log.error("cannot read %s-%d: %s", partition.topic, partition.index, error)
            return _failed(fetched.index, ErrorCode.KAFKA_STORAGE_ERROR)
        return data

    def is_enough(self, results: list[_Data]) -> bool:
        if not results:
            return True
        found = 0
        for data in results:
            if data is QUIET:
                continue
            if data.error_code != ErrorCode.NONE or data.diverging_epoch.epoch >= 0:
                return True
            found += len(data.records or b"")
        self._bytes_missing = self._request.min_bytes - found
        return self._bytes_missing <= 0

    def respond(self, results: list[_Data]) -> FetchResponse:
        for fetched, data in zip(self._fetching.partitions, results, strict=True):
            if data.records and isinstance(partition := self._find(fetched), Partition):
                self._ctx.services.metrics.topic(partition.topic).bytes_out += len(data.records)
        return self._fetching.respond(results)

    # waiting

    def start(self) -> FetchResponse | None:
        """The answer, if the request need not wait."""
        results = self.read()
        if self.is_enough(results) or self._request.max_wait_ms <= 0:
            return self.respond(results)
        # Who comes when too many wait is told what there is, as if its time were up.
        return self.respond(results) if self._ctx.services.ledger.parked_bytes.is_full else None

    def park(self) -> Parked:
        parked = self._hold()
        self._watch(parked)
        return parked

    def _watch(self, parked: Parked) -> None:
        self._parked = parked
        self._deadline = self._ctx.services.deadlines.after(self._request.max_wait_ms / 1000, self._complete)
        for fetched in self._fetching.partitions:
            partition = self._find(fetched)
            if isinstance(partition, Partition):
                partition.add_waiter(self._on_append)
                self._watched.append(partition)
                if self._held is not None:
                    self._held.watch(partition, fetched.wanted.fetch_offset)

    def _hold(self) -> Parked:
        self._parked_bytes = PARKED_REQUEST_BYTES + PARKED_PARTITION_BYTES * len(self._fetching.partitions)
        self._ctx.services.ledger.parked_bytes.used += self._parked_bytes
        parked = self._ctx.park()
        parked.when_dropped(self._forget)
        return parked

    def start_in_turn(self) -> Parked:
        """Others are before it, and may be for long: nothing is read until they have left, as in Kafka, which looks at
        one request of a connection at a time."""
        parked = self._hold()
        parked.answer_in_turn(partial(self._begin, parked))
        return parked

    def _begin(self, parked: Parked) -> FetchResponse | None:
        try:
            response = self.start()
        except WouldBlock:
            self._make_cold(parked)
            return None
        if response is None:
            self._watch(parked)
        else:
            self._release()
        return response

    def answer_cold(self) -> Parked:
        """Bytes are not in memory. They are brought when all before it have left, not earlier: nobody may take them."""
        parked = self._hold()
        parked.answer_in_turn(partial(self._make_cold, parked))
        return parked

    def make(self, parked: Parked) -> FetchResponse | None:
        """With what there is now. None when that is not in memory: the answer then follows."""
        try:
            response = self.respond(self.read())
        except WouldBlock:
            self._make_cold(parked)
            return None
        self._release()
        return response

    def _make_cold(self, parked: Parked) -> None:
        self._release()
        self._ctx.services.cold_reads.answer(parked, self._ctx, partial(self._answer_cold, parked))

    async def _answer_cold(self, parked: Parked) -> None:
        """One partition after the other: each is read as it is when its bytes have come."""
        room = min(self._room(), REQUEST_BYTES_MAX)
        results: list[_Data] = []
        nothing_yet = True
        for fetched in self._fetching.partitions:
            action = partial(self._read_partition, fetched, room, nothing_yet)
            data = await self._ctx.services.cold_reads.run(action)
            if data.records:
                nothing_yet = False
                room = max(room - len(data.records), 0)
            results.append(data)
        parked.answer(self.respond(results))

    def _release(self) -> None:
        self._ctx.services.ledger.parked_bytes.used -= self._parked_bytes
        self._parked_bytes = 0

    def _on_append(self, partition: Partition, new_bytes: int) -> None:
        if self._held is not None and new_bytes:
            new_bytes = self._held.readable(partition, new_bytes)
            if not new_bytes:
                return
        self._bytes_missing -= new_bytes
        if (self._bytes_missing <= 0 or new_bytes == 0) and not self._is_woken:
            # After this turn of the loop: what else the same wake-up appends goes into the same answer.
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._complete)

    def _complete(self) -> None:
        parked = self._parked
        if parked is None:
            return
        self._unwatch()
        parked.answer_in_turn(partial(self.make, parked))

    def _forget(self) -> None:
        self._unwatch()
        self._release()

    def _unwatch(self) -> None:
        self._parked = None
        if self._deadline is not None:
            self._deadline.cancel()
        for partition in self._watched:
            partition.remove_waiter(self._on_append)
        self._watched.clear()


def _failed(index: int, code: int) -> _Data:
    return _Data(partition_index=index, error_code=code, high_watermark=-1, records=b"")


def _diverges(partition: Partition, wanted: FetchRequest.FetchPartition, data: _Data) -> bool:
    """KIP-595: the reader's last epoch ended earlier here than where it reads on, so it must cut back."""
    log = partition.log
    epoch, end_offset = log.leader_epochs.end_offset_for(wanted.last_fetched_epoch, log.log_end_offset)
    if epoch < 0 or end_offset < 0:
        raise LogError(ErrorCode.OFFSET_OUT_OF_RANGE, "the epoch of the last fetch is unknown here")
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        data.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return True
    return False


_LONGHAND: Final = Longhand(_begin, _respond)
API = Api(key=1, versions=range(4, 19), handle=handle, learn=lambda request, ctx: learn(request, ctx, _LONGHAND))
