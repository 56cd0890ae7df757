"""A producer: records in, batches out, in order per partition. Keys are placed as Java places them.

One batch per partition is under way at a time: order survives retries, and an idempotent producer needs no more.
Records that cannot be delivered fail their own futures; the producer goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tidelog.client.accumulator import Accumulator, Pending, RecordMetadata, estimated_size
from tidelog.client.cluster import ANY_NODE, Cluster
from tidelog.client.errors import BrokerError, ClientError, ConnectionLostError, check
from tidelog.client.metadata import TopicInfo, TopicPartition
from tidelog.client.producing import Produced, produce
from tidelog.protocol.batch import NO_TIMESTAMP, RecordInput, build_batch, increment_sequence
from tidelog.protocol.compression import Codec
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.partitioner import partition_for_key

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    acks: int = -1
    linger_ms: float = 5.0
    batch_bytes: int = 64 * 1024
    buffer_bytes_max: int = 32 * 1024 * 1024
    compression: Codec = Codec.NONE
    compression_level: int | None = None
    idempotence: bool = False
    delivery_timeout_s: float = 120.0
    auto_create_topics: bool = True


@dataclass(slots=True)
class _ProducerId:
    producer_id: int
    epoch: int


class Producer:
    """An async context manager that delivers what was sent before it ends."""

    def __init__(self, cluster: Cluster, options: ProducerOptions | None = None) -> None:
        self._cluster = cluster
        self._options = options or ProducerOptions()
        self._partitions: dict[TopicPartition, _PartitionSender] = {}
        self._sticky: dict[str, int] = {}
        self._buffered_bytes = 0
        self._room = asyncio.Condition()
        self._identity: _ProducerId | None = None
        self._identity_lock = asyncio.Lock()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(deliver=kind is None)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Queue a record, once there is room for it; the future is done when it is delivered (or cannot be)."""
        if self._is_closed:
            raise ClientError("the producer has been closed")
        info = self._cluster.fresh_topic(topic) or await self._cluster.topic(
            topic, auto_create=self._options.auto_create_topics
        )
        stamp = self._cluster.clock.wall_ms() if timestamp is None else timestamp
        record = RecordInput(key, value, stamp, tuple(headers))
        size = estimated_size(record)
        await self._wait_room(size)
        at = TopicPartition(topic, self._choose(info, key, partition))
        sent: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        sent.add_done_callback(_look)
        self._sender(at).add(Pending(record, size, sent))
        return sent

    async def flush(self) -> None:
        """Wait until all that was sent before is delivered or has failed."""
        await asyncio.gather(*(sender.flush() for sender in self._partitions.values()))

    async def close(self, *, deliver: bool = True) -> None:
        self._is_closed = True
        if deliver:
            await self.flush()
        await asyncio.gather(*(sender.stop() for sender in self._partitions.values()))

    # Partitions

    def _choose(self, topic: TopicInfo, key: bytes | None, partition: int | None) -> int:
        count = len(topic.partitions)
        if partition is not None:
            if not 0 <= partition < count:
                subject = f"partition {partition} of topic {topic.name}"
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, subject, f"the topic has {count} partitions")
            return partition
        if key is not None:
            return partition_for_key(key, count)
        return self._sticky_partition(topic)

    def _sticky_partition(self, topic: TopicInfo) -> int:
        """Records without a key fill one partition's batch, then another's: full batches cost less than even ones."""
        chosen = self._sticky.get(topic.name)
        if chosen is None or chosen not in topic.partitions:
            led = [index for index, found in topic.partitions.items() if found.leader in self._cluster.metadata.brokers]
            chosen = self._sticky[topic.name] = self._cluster.random.choice(led or list(topic.partitions))
        return chosen

    def batch_was_taken(self, at: TopicPartition) -> None:
        if self._sticky.get(at.topic) == at.partition:
            del self._sticky[at.topic]

    def _sender(self, at: TopicPartition) -> _PartitionSender:
        found = self._partitions.get(at)
        if found is None:
            found = self._partitions[at] = _PartitionSender(self, self._cluster, self._options, at)
        return found

    # The bound on what waits

    async def _wait_room(self, size: int) -> None:
        limit = self._options.buffer_bytes_max
        if self._buffered_bytes + size <= limit and not self._room.locked():
            self._buffered_bytes += size
            return
        async with self._room:
            # A record larger than the whole bound may pass alone.
            await self._room.wait_for(lambda: self._buffered_bytes == 0 or self._buffered_bytes + size <= limit)
            self._buffered_bytes += size

    async def give_back(self, size: int) -> None:
        async with self._room:
            self._buffered_bytes -= size
            self._room.notify_all()

    # Idempotence

    async def identity(self) -> _ProducerId | None:
        if not self._options.idempotence:
            return None
        async with self._identity_lock:
            if self._identity is None:
                self._identity = await self._cluster.retrying(self._init_producer_id)
            return self._identity

    def forget_identity(self, stale: _ProducerId) -> None:
        """A batch was given up whose fate is unknown: its sequence may be used or not, so all begin anew."""
        if self._identity is stale:
            self._identity = None

    async def _init_producer_id(self) -> _ProducerId:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        answer = await self._cluster.call(ANY_NODE, request, InitProducerIdRequest, InitProducerIdResponse)
        check(answer.error_code, "producer id")
        return _ProducerId(answer.producer_id, answer.producer_epoch)


class _PartitionSender:
    """One partition's queue and the task that empties it."""

    def __init__(self, producer: Producer, cluster: Cluster, options: ProducerOptions, at: TopicPartition) -> None:
        self._producer = producer
        self._cluster = cluster
        self._options = options
        self._at = at
        self._queue = Accumulator(options.batch_bytes, options.linger_ms / 1000)
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._flushing = 0
        self._identity: _ProducerId | None = None
        self._sequence = 0
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"producer {at}")

    def add(self, pending: Pending) -> None:
        self._queue.add(pending, self._now_s())
        self._idle.clear()
        self._changed.set()

    async def flush(self) -> None:
        self._flushing += 1
        self._changed.set()
        try:
            await self._idle.wait()
        finally:
            self._flushing -= 1

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        for pending in self._queue.take_all():
            if not pending.sent.done():
                pending.sent.set_exception(ClientError("the producer was closed before the record was sent"))

    async def _run(self) -> None:
        while True:
            wait_s = self._queue.wait_s(self._now_s(), flush=self._flushing > 0)
            if wait_s == 0:
                batch = self._queue.take(self._now_s())
                self._producer.batch_was_taken(self._at)
                await self._deliver(batch)
                await self._producer.give_back(sum(pending.size for pending in batch))
                continue
            if wait_s is None:
                self._idle.set()
            self._changed.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _deliver(self, batch: list[Pending]) -> None:
        try:
            produced = await self._produce(batch)
        except asyncio.CancelledError:
            _fail(batch, ConnectionLostError("the producer was closed with the record under way"))
            raise
        except Exception as error:
            if _is_too_large(error) and len(batch) > 1:
                half = len(batch) // 2
                await self._deliver(batch[:half])
                await self._deliver(batch[half:])
            else:
                _fail(batch, error)
            return
        for index, pending in enumerate(batch):
            if not pending.sent.done():
                pending.sent.set_result(self._metadata(produced, index, pending.record))

    async def _produce(self, batch: list[Pending]) -> Produced:
        identity = await self._producer.identity()
        if identity is not self._identity:
            self._identity, self._sequence = identity, 0
        data = build_batch(
            [pending.record for pending in batch],
            codec=self._options.compression,
            level=self._options.compression_level,
            producer_id=-1 if identity is None else identity.producer_id,
            producer_epoch=-1 if identity is None else identity.epoch,
            base_sequence=-1 if identity is None else self._sequence,
        )
        timeout_s = self._options.delivery_timeout_s
        try:
            produced = await produce(self._cluster, self._at, data, acks=self._options.acks, timeout_s=timeout_s)
        except Exception as error:
            if identity is not None and not _is_too_large(error):
                self._producer.forget_identity(identity)
            raise
        self._sequence = increment_sequence(self._sequence, len(batch))
        return produced

    def _metadata(self, produced: Produced, index: int, record: RecordInput) -> RecordMetadata:
        offset = -1 if produced.base_offset < 0 else produced.base_offset + index
        stamp = record.timestamp if produced.log_append_time_ms == NO_TIMESTAMP else produced.log_append_time_ms
        return RecordMetadata(self._at.topic, self._at.partition, offset, stamp)

    def _now_s(self) -> float:
        return self._cluster.clock.monotonic_s()


def _fail(batch: Sequence[Pending], error: Exception) -> None:
    for pending in batch:
        if not pending.sent.done():
            pending.sent.set_exception(error)


def _is_too_large(error: Exception) -> bool:
    codes = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
    return isinstance(error, BrokerError) and error.code in codes


def _look(sent: asyncio.Future[RecordMetadata]) -> None:
    """Whoever does not care for a record's fate need not hear of it at exit."""
    if not sent.cancelled():
        sent.exception()
