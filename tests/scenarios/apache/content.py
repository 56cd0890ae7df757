"""Fills a broker with one of each thing that a directory can hold, through real clients and, where an answer must be
provoked, by hand."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.testing.wire import Wire

CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
TOPICS: Final[Mapping[str, tuple[int, Mapping[str, str]]]] = {
    "plain": (3, {}),
    **{f"codec-{codec}": (1, {}) for codec in CODECS},
    "recompressed": (1, {"compression.type": "zstd"}),
    "append-time": (1, {"message.timestamp.type": "LogAppendTime"}),
    # Their records are a minute apart: each batch opens a segment.
    "segments": (1, {"segment.ms": "30000"}),
    "trimmed": (1, {"segment.ms": "30000"}),
    "beheaded": (1, {"segment.ms": "30000"}),
    "compacted": (1, {"cleanup.policy": "compact"}),
    "idempotent": (1, {}),
    "reconfigured": (1, {"retention.ms": "99999999", "max.message.bytes": "500000"}),
    "grown": (1, {}),
    "empty": (2, {}),
    "gone": (1, {}),
}
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
TOPIC, BROKER = 2, 4
LOADING: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_SET, _DELETE = 0, 1


def fill(bootstrap: str, start_ms: int) -> None:
    """`start_ms` is the timestamp of the first record; those that follow are at most an hour younger."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create(bootstrap, TOPICS)
    fill_plain(bootstrap, start_ms)
    for codec in CODECS:
        produce(bootstrap, f"codec-{codec}", 50, start_ms, **{"compression.type": codec})
    produce(bootstrap, "recompressed", 50, start_ms, **{"compression.type": "snappy"})
    for name in ("append-time", "compacted", "reconfigured", "grown", "gone"):
        produce(bootstrap, name, 20, start_ms)
    apart = [minute * MINUTE_MS for minute in range(6) for _ in range(3)]
    for name in ("segments", "trimmed"):
        produce(bootstrap, name, 5, *(start_ms + time for time in apart))
    # A day earlier: while segments before the log's start still lie there, Apache answers look-ups by their times.
    produce(bootstrap, "beheaded", 5, *(start_ms - DAY_MS + time for time in apart))
    settle(admin.delete_records([TopicPartition("trimmed", 0, 7), TopicPartition("beheaded", 0, 52)]))
    reconfigure(bootstrap)
    settle(admin.create_partitions([NewPartitions("grown", 3)]))
    wait_for_partitions(bootstrap, {"grown": 3})
    produce(bootstrap, "grown", 20, start_ms, partition=2)
    settle(admin.delete_topics(["gone"]))
    commit(bootstrap, "simple", {("plain", 0): 7, ("plain", 2): 11, ("segments", 0): 40})
    take_part(bootstrap, "members", "plain")
    take_part(bootstrap, "static", "plain", **{"group.instance.id": "instance-1"})


def create(bootstrap: str, topics: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
    wanted = [NewTopic(name, count, 1, config=dict(config)) for name, (count, config) in topics.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap})  # Without a name it would be closed before it is answered.
    settle(admin.create_topics(wanted))
    wait_for_partitions(bootstrap, {name: count for name, (count, _) in topics.items()})


def wait_for_partitions(bootstrap: str, counts: Mapping[str, int]) -> None:
    """Apache's broker hears of a change some time after its controller has answered."""
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in counts])
    deadline = time.monotonic() + 20
    with Wire(bootstrap) as wire:
        while True:
            topics = wire.call(request, 12, MetadataResponse).topics
            led = {t.name: sum(p.error_code == 0 and p.leader_id >= 0 for p in t.partitions) for t in topics}
            if led == counts:
                return
            assert time.monotonic() < deadline, led
            time.sleep(0.05)


def settle(futures: Mapping[object, object]) -> None:
    for future in futures.values():
        future.result(20)  # type: ignore[attr-defined]


def produce(bootstrap: str, topic: str, count: int, *times: int, partition: int = 0, **config: object) -> None:
    """For each of the times one batch, unless it grows too large."""
    delivered: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 1000, **config})
    for start_ms in times:
        for number in range(count):
            producer.produce(
                topic,
                key=f"key-{number % 7}".encode(),
                value=f"{topic} {number} ".encode() * 5,
                partition=partition,
                timestamp=start_ms + number,
                on_delivery=lambda error, _: delivered.append(error),
            )
        assert producer.flush(20) == 0
    assert [error for error in delivered if error is not None] == []
    assert len(delivered) == count * len(times)


def fill_plain(bootstrap: str, start_ms: int) -> None:
    """Null keys and values, headers with null and twice the same name, times that go backwards, several batches."""
    for part in range(3):
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": part == 0, "linger.ms": 1000})
        for number in range(90):
            producer.produce(
                "plain",
                key=None if number % 5 == 0 else str(number).encode(),
                value=None if number % 11 == 0 else bytes([number]) * number,
                partition=number % 3,
                timestamp=start_ms + (45 - number) * 1000 + part * MINUTE_MS,
                headers=[("a", b"1"), ("a", None), ("é", b"")] if number % 4 == 0 else None,
            )
        assert producer.flush(20) == 0


def reconfigure(bootstrap: str) -> None:
    """A topic's setting changed, one removed; one for all brokers, one for this one."""
    _alter(bootstrap, TOPIC, "reconfigured", {"retention.ms": "88888888", "max.message.bytes": None})
    _alter(bootstrap, BROKER, "", {"log.retention.ms": "777777777"})
    _alter(bootstrap, BROKER, "1", {"log.segment.bytes": "66666666"})


def _alter(bootstrap: str, kind: int, name: str, values: Mapping[str, str | None]) -> None:
    shape = IncrementalAlterConfigsRequest
    changes = [
        shape.AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in values.items()
    ]
    resource = shape.AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    with Wire(bootstrap) as wire:
        answer = wire.call(shape(resources=[resource]), 1, IncrementalAlterConfigsResponse).responses[0]
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def wait_for_coordinator(bootstrap: str, group: str) -> None:
    """The first who asks for a coordinator makes Apache create `__consumer_offsets`, which takes its time."""
    find = FindCoordinatorRequest(coordinator_keys=[group])
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)])
    deadline = time.monotonic() + 30
    with Wire(bootstrap) as wire:
        while True:
            found = wire.call(find, 4, FindCoordinatorResponse).coordinators[0].error_code
            if found == ErrorCode.NONE:
                found = wire.call(fetch, 9, OffsetFetchResponse).groups[0].error_code
            if found == ErrorCode.NONE:
                return
            assert found in LOADING and time.monotonic() < deadline, ErrorCode(found).name
            time.sleep(0.05)


def commit(bootstrap: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    wait_for_coordinator(bootstrap, group)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    positions = [
        TopicPartition(topic, index, offset, metadata=f"at {offset}", leader_epoch=0)
        for (topic, index), offset in offsets.items()
    ]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


def take_part(bootstrap: str, group: str, topic: str, *, until: int = 270, **config: object) -> None:
    """Join, read so many records, commit, and go: a static member stays a member."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **config,
    }
    if config.get("group.protocol") != "consumer":
        settings["session.timeout.ms"] = 300_000
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    read = 0
    while read < until:
        message = consumer.poll(20)
        assert message is not None and message.error() is None, f"{group} reads nothing more after {read} records"
        read += 1
    consumer.commit(asynchronous=False)
    consumer.close()


class IdempotentProducer:
    """By hand, so that a retry can come after the change of brokers."""

    def __init__(self, bootstrap: str) -> None:
        with Wire(bootstrap) as wire:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
            self.producer_id = wire.call(request, 4, InitProducerIdResponse).producer_id

    def send(self, bootstrap: str, sequence: int, now_ms: int, topic: str = "idempotent") -> tuple[ErrorCode, int]:
        batch = build_batch(
            [RecordInput(b"k", b"%d" % sequence, now_ms)],
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        data = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
        named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
        with Wire(bootstrap) as wire:
            response = wire.call(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[named]), 9, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        return ErrorCode(answer.error_code), answer.base_offset
