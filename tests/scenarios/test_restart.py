"""What a kill -9 and a clean stop leave behind, with a real process and a real disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.testing import Broker
from tidelog.testing.wire import Wire


def produce_all(broker: Broker, topic: str, count: int) -> None:
    acknowledged: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    for number in range(count):
        producer.produce(
            topic, f"value-{number}".encode(), partition=0, on_delivery=lambda e, m: acknowledged.append(e)
        )
    assert producer.flush(20) == 0
    assert acknowledged == [None] * count


def consume_all(broker: Broker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while len(values) < count:
        messages = consumer.consume(count, timeout=10)
        assert messages, f"only {len(values)} of {count} came back"
        values += [message.value() or b"" for message in messages]
    consumer.close()
    return values


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(broker: Broker, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    offset: int = consumer.committed([TopicPartition(topic, 0)], timeout=10)[0].offset
    consumer.close()
    return offset


class Sequence:
    """An idempotent producer by hand, so that a retry after a restart can be sent on purpose."""

    def __init__(self, broker: Broker) -> None:
        with Wire(broker.bootstrap_servers) as wire:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
            self.producer_id = wire.call(request, 4, InitProducerIdResponse).producer_id

    def send(self, broker: Broker, topic: str, sequence: int) -> tuple[ErrorCode, int]:
        batch = build_batch(
            [RecordInput(b"k", b"once", 1)], producer_id=self.producer_id, producer_epoch=0, base_sequence=sequence
        )
        data = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
        named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
        with Wire(broker.bootstrap_servers) as wire:
            response = wire.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[named]), 9, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        return ErrorCode(answer.error_code), answer.base_offset


@pytest.fixture(params=["log", "snapshot"])
def config(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The metadata comes back from the log alone, or from a snapshot and the rest of the log."""
    yield {"metadata.log.max.record.bytes.between.snapshots": "300"} if request.param == "snapshot" else {}


def test_a_kill_restores_topics_configs_producers_and_groups(tmp_path: Path, config: dict[str, str]) -> None:
    broker = Broker(config, process=True, data=tmp_path).start()
    broker.create_topic("kept", partitions=2, config={"retention.ms": "12345678"})
    broker.create_topic("deleted")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["deleted"])["deleted"].result(10)
    admin.create_partitions([NewPartitions("kept", 3)])["kept"].result(10)
    entry = ConfigEntry("segment.bytes", "2000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "kept", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(10)
    produce_all(broker, "kept", 500)
    commit(broker, "readers", "kept", 123)
    idempotent = Sequence(broker)
    assert idempotent.send(broker, "kept", 0) == (ErrorCode.NONE, 500)
    assert idempotent.send(broker, "kept", 1) == (ErrorCode.NONE, 501)
    metadata_files = os.listdir(tmp_path / "__cluster_metadata-0")
    assert any(name.endswith(".checkpoint") for name in metadata_files) == bool(config)
    broker.kill()

    with Broker(config, process=True, data=tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = admin.list_topics(timeout=10).topics
        assert {name: len(topic.partitions) for name, topic in topics.items() if not name.startswith("__")} == {
            "kept": 3
        }
        described = ConfigResource(ConfigResource.Type.TOPIC, "kept")
        values = admin.describe_configs([described])[described].result(10)
        assert (values["retention.ms"].value, values["segment.bytes"].value) == ("12345678", "2000000")
        assert consume_all(broker, "kept", 502)[:500] == [f"value-{number}".encode() for number in range(500)]
        assert committed(broker, "readers", "kept") == 123
        assert idempotent.send(broker, "kept", 1) == (ErrorCode.NONE, 501), (
            "a retry across the kill is still a duplicate"
        )
        assert idempotent.send(broker, "kept", 3) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert idempotent.send(broker, "kept", 2) == (ErrorCode.NONE, 502)
        assert Sequence(broker).producer_id != idempotent.producer_id


def test_a_torn_tail_is_cut_off_and_what_was_acknowledged_before_it_stays(tmp_path: Path) -> None:
    broker = Broker(process=True, data=tmp_path).start()
    broker.create_topic("torn")
    produce_all(broker, "torn", 100)
    broker.kill()
    segment = tmp_path / "torn-0" / f"{0:020}.log"
    whole = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(bytes(build_batch([RecordInput(None, b"half of me", 1)], base_offset=100))[:-5])
    with Broker(process=True, data=tmp_path) as broker:
        assert segment.stat().st_size == whole
        assert len(consume_all(broker, "torn", 100)) == 100
        produce_all(broker, "torn", 1)
        assert len(consume_all(broker, "torn", 101)) == 101


def test_a_clean_stop_leaves_the_marker_and_comes_back(tmp_path: Path) -> None:
    with Broker(process=True, data=tmp_path) as broker:
        broker.create_topic("clean")
        produce_all(broker, "clean", 50)
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert (tmp_path / ".kafka_cleanshutdown").read_text().startswith('{"version":0,"brokerEpoch":')
    with Broker(process=True, data=tmp_path) as broker:
        assert len(consume_all(broker, "clean", 50)) == 50


def test_a_second_node_on_the_same_directory_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with Broker(process=True, data=tmp_path):
        command = [sys.executable, "-m", "tidelog", "serve", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
        second = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 1
    assert second.stderr.strip() == (
        f"tidelog serve: the data directory {tmp_path} is in use by another node: "
        "stop that one or choose another directory"
    )
    assert second.stdout == ""


def test_the_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    with Broker(process=True, data=tmp_path):
        pass
    command = [sys.executable, "-m", "tidelog", "serve", "--data", str(tmp_path), "--override", "node.id=7"]
    other = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert other.returncode == 1
    assert "belongs to node 1, but node.id is 7" in other.stderr
