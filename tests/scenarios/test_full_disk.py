"""A real disk that is full: writes are refused and taken back, reads go on, and writes return with the room."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.testing import Broker
from tidelog.testing.wire import Wire

SIZE = "4m"
WAIT_S = 30.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("a small disk is a tmpfs, and there is no mount command here")
    command = [mount, "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small disk is a tmpfs, which may not be mounted here (it takes root)")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def produce(wire: Wire, topic: str, value: bytes) -> tuple[ErrorCode, int]:
    data = ProduceRequest.PartitionProduceData(
        index=0, records=memoryview(build_batch([RecordInput(None, value, int(time.time() * 1000))]))
    )
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )
    answer = wire.call(request, 9, ProduceResponse).responses[0].partition_responses[0]
    return ErrorCode(answer.error_code), answer.base_offset


def values_of(broker: Broker, topic: str, first: int, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, first)])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), timeout=WAIT_S)
        assert messages, f"only {len(found)} of {count} came back"
        found += [message.value() or b"" for message in messages]
    consumer.close()
    return found


def test_a_full_disk_refuses_serves_and_recovers(small_disk: Path) -> None:
    config = {"log.retention.check.interval.ms": "200", "offsets.topic.num.partitions": "1"}
    with Broker(config, data=small_disk / "data") as broker:
        topic = broker.create_topic(config={"internal.segment.bytes": "200000", "file.delete.delay.ms": "100"})
        with Wire(broker.bootstrap_servers) as wire:
            written: list[bytes] = []
            code = ErrorCode.NONE
            while code is ErrorCode.NONE:
                value = b"%04d" % len(written) + b"." * 50_000
                code, offset = produce(wire, topic, value)
                if code is ErrorCode.NONE:
                    assert offset == len(written)
                    written.append(value)
                assert len(written) < 1000, "the disk does not fill"
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
            assert produce(wire, topic, b"x" * 50_000) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            assert values_of(broker, topic, 0, len(written)) == written

            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            kept = len(written) - 5
            for future in admin.delete_records([TopicPartition(topic, 0, kept)]).values():
                future.result(WAIT_S)
            deadline = time.monotonic() + WAIT_S
            back = b"back" + b"." * 100_000
            while (answer := produce(wire, topic, back))[0] is not ErrorCode.NONE:
                assert answer[0] is ErrorCode.KAFKA_STORAGE_ERROR
                assert time.monotonic() < deadline, "retention made no room"
                time.sleep(0.05)
            assert answer[1] == len(written), "an offset was given to what was refused"
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce(topic, b"and on", partition=0)
        assert producer.flush(WAIT_S) == 0
        assert values_of(broker, topic, kept, 7) == [*written[kept:], back, b"and on"]
