"""Ready-made requests for the load generator, which knows no protocol: the bytes, and where an answer's error is."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.fetch import FetchRequest
from tidelog.protocol.messages.produce import ProduceRequest

PRODUCE_VERSION = 13
"""As the Java client of 4.3 sends it: topics by id."""
FETCH_VERSION = 17
BATCH_BYTES = 16_384
"""The Java producer's batch.size."""
FETCH_BYTES = 1 << 20
"""The Java consumer's max.partition.fetch.bytes."""
VARIANTS = 16


class Frames(NamedTuple):
    data: bytes
    check: int
    """The position of the error code within an answer."""
    records_each: int = 1


def _values(size: int, count: int, variant: int) -> list[RecordInput]:
    letters = random.Random(variant)
    now_ms = time.time_ns() // 1_000_000 + variant
    return [RecordInput(None, bytes(letters.choices(range(65, 91), k=size)), now_ms) for _ in range(count)]


def batch_of(size: int, count: int = 0, variant: int = 0) -> tuple[bytes, int]:
    """A batch of `count` records, as many as the Java producer would put into one when that is 0; and their number.

    Variants differ in every value, the times and the checksum, not in size."""
    if count:
        return bytes(build_batch(_values(size, count, variant))), count
    values = _values(size, max(1, BATCH_BYTES // size), variant)
    while len(batch := build_batch(values)) > BATCH_BYTES and len(values) > 1:
        values.pop()
    return bytes(batch), len(values)


def produce(topic_id: bytes, partitions: Iterable[int], size: int, *, count: int = 0, acks: int = 1) -> Frames:
    """A frame per partition, each with one batch; then once more with other records, several times: no broker shall
    profit from being sent the same bytes again, which no client does."""
    partitions = list(partitions)
    variants = [batch_of(size, count, variant) for variant in range(VARIANTS if len(partitions) <= 10 else 1)]
    data = b"".join(_produce(topic_id, index, batch, acks) for batch, _ in variants for index in partitions)
    # correlation id, tags | topics, id, partitions, index | error
    return Frames(data, 4 + 1 + 1 + 16 + 1 + 4, variants[0][1])


def _produce(topic_id: bytes, partition: int, batch: bytes, acks: int) -> bytes:
    part = ProduceRequest.PartitionProduceData(index=partition, records=batch)
    topic = ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[part])
    return encode_request(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic]), PRODUCE_VERSION, 1, "bench")


def fetch(topic_id: bytes, batch_bytes: int, records_each: int, batches: int) -> Frames:
    """Frames that read a partition of equal batches from its beginning to its end, 1 MiB at a time."""
    at_once = max(1, FETCH_BYTES // batch_bytes)
    offsets = range(0, batches * records_each, at_once * records_each)
    data = b"".join(_fetch(topic_id, offset, at_once * batch_bytes) for offset in offsets)
    # correlation id, tags, throttle time, error, session | topics, id, partitions, index | error
    return Frames(data, 4 + 1 + 4 + 2 + 4 + 1 + 16 + 1 + 4, at_once * records_each)


def _fetch(topic_id: bytes, offset: int, bytes_max: int) -> bytes:
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    topic = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[part])
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=[topic])
    return encode_request(request, FETCH_VERSION, 1, "bench")
