"""Bad input gets Kafka's error code, or a closed connection where Kafka closes, and changes nothing."""

from __future__ import annotations

import struct

import pytest

from tidelog.protocol.batch import CRC_OFFSET, RecordInput, build_batch
from tidelog.protocol.compression import Codec
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.testing import Broker
from tidelog.testing.wire import Wire


def produce(
    wire: Wire, topic: str, records: bytes | None, *, acks: int = -1, partition: int = 0
) -> ProduceResponse.PartitionProduceResponse:
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    response = wire.call(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[named]), 9, ProduceResponse)
    return response.responses[0].partition_responses[0]


def end_offset(wire: Wire, topic: str) -> int:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])]
    )
    return wire.call(request, 5, ListOffsetsResponse).topics[0].partitions[0].offset


def is_closed(wire: Wire) -> bool:
    try:
        return wire.socket.recv(1) == b""
    except ConnectionResetError:
        return True


def header(key: int, version: int, correlation_id: int = 7) -> bytes:
    return struct.pack(">hhih", key, version, correlation_id, -1)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", -1), id="negative size"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="size above socket.request.max.bytes"),
        pytest.param(framed(b""), id="empty frame"),
        pytest.param(framed(b"\x00\x12"), id="half a header"),
        pytest.param(framed(header(999, 0)), id="unknown API"),
        pytest.param(framed(header(4, 0)), id="API that Kafka removed"),
        pytest.param(framed(header(0, 2)), id="Produce v2, named but refused"),
        pytest.param(framed(header(3, 99)), id="unknown version"),
        pytest.param(framed(header(3, 1) + b"\x7f\xff\xff\xff"), id="forged array count"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="somebody speaks HTTP"),
    ],
)
def test_what_is_no_request_closes_the_connection_and_nothing_else(broker: Broker, data: bytes) -> None:
    with Wire(broker.bootstrap_servers) as bad, Wire(broker.bootstrap_servers) as good:
        bad.socket.sendall(data)
        assert is_closed(bad)
        assert good.call(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == ErrorCode.NONE


def test_a_newer_api_versions_is_answered_in_version_0_with_our_range(wire: Wire) -> None:
    request = encode_request(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4, 5, "c")
    newer = bytearray(request)
    struct.pack_into(">h", newer, 6, 99)
    wire.socket.sendall(newer)
    answer = wire.receive(ApiVersionsResponse, 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in answer.api_keys] == [(18, 0, 4)]


def test_bytes_after_a_request_are_let_be_as_kafka_does(wire: Wire) -> None:
    """librdkafka 2.16 asks for all topics with a four-byte array count where a compact one belongs."""
    wire.socket.sendall(framed(header(3, 13) + b"\x00" + b"\x00\x00\x00\x00\x01\x00\x00"))
    assert wire.receive(MetadataResponse, 13).error_code == ErrorCode.NONE


def test_frames_may_arrive_byte_by_byte_and_many_at_once(wire: Wire) -> None:
    one = encode_request(ApiVersionsRequest(), 0, 1, "client")
    for index in range(len(one)):
        wire.socket.sendall(one[index : index + 1])
    assert wire.receive(ApiVersionsResponse, 0).error_code == ErrorCode.NONE
    wire.socket.sendall(one * 500)
    assert all(wire.receive(ApiVersionsResponse, 0).error_code == ErrorCode.NONE for _ in range(500))


def test_answers_come_in_the_order_of_the_requests_even_when_the_first_waits(broker: Broker, wire: Wire) -> None:
    topic = broker.create_topic()
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    waiting = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
    )
    wire.send(waiting, 11)
    wire.send(ApiVersionsRequest(), 0)
    with Wire(broker.bootstrap_servers) as other:
        produce(other, topic, bytes(build_batch([RecordInput(None, b"wakes the fetch", 1)])))
    fetched = wire.receive(FetchResponse, 11)
    assert b"wakes the fetch" in bytes(fetched.responses[0].partitions[0].records or b"")
    assert wire.receive(ApiVersionsResponse, 0).error_code == ErrorCode.NONE


def batch(**kwargs: int) -> bytearray:
    return build_batch([RecordInput(b"k", b"v" * 50, 1_000)], **kwargs)


def patched(offset: int, layout: str, value: int, *, mend_crc: bool = True) -> bytes:
    from crc32c import crc32c

    data = batch()
    struct.pack_into(layout, data, offset, value)
    if mend_crc:
        struct.pack_into(">I", data, CRC_OFFSET, crc32c(memoryview(data)[21:]))
    return bytes(data)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        pytest.param(b"", ErrorCode.INVALID_RECORD, id="nothing"),
        pytest.param(b"garbage", ErrorCode.CORRUPT_MESSAGE, id="garbage"),
        pytest.param(patched(30, ">b", 1, mend_crc=False), ErrorCode.CORRUPT_MESSAGE, id="wrong CRC"),
        pytest.param(bytes(batch()) * 2, ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(bytes(batch())[:-1], ErrorCode.CORRUPT_MESSAGE, id="cut short"),
        pytest.param(patched(16, ">b", 1), ErrorCode.INVALID_RECORD, id="old format"),
        pytest.param(patched(57, ">i", 5), ErrorCode.INVALID_RECORD, id="count and delta disagree"),
        pytest.param(patched(57, ">i", -1), ErrorCode.INVALID_RECORD, id="negative count"),
        pytest.param(patched(21, ">h", 0x20), ErrorCode.INVALID_RECORD, id="control batch"),
        pytest.param(patched(21, ">h", 7), ErrorCode.INVALID_RECORD, id="unknown compression"),
        pytest.param(
            bytes(batch(producer_id=5, producer_epoch=0)), ErrorCode.INVALID_RECORD, id="idempotent, no sequence"
        ),
        pytest.param(
            patched(21, ">h", 0x10), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, id="transactional, without an id"
        ),
        pytest.param(
            bytes(build_batch([RecordInput(None, b"x" * 1_100_000, 1)])), ErrorCode.MESSAGE_TOO_LARGE, id="too large"
        ),
        pytest.param(
            bytes(build_batch([RecordInput(None, b"x", 2**45)])), ErrorCode.INVALID_TIMESTAMP, id="from the far future"
        ),
    ],
)
def test_a_bad_batch_is_refused_and_not_written(broker: Broker, wire: Wire, records: bytes, code: ErrorCode) -> None:
    topic = broker.create_topic()
    answer = produce(wire, topic, records)
    assert (ErrorCode(answer.error_code), answer.base_offset) == (code, -1)
    assert answer.error_message
    assert end_offset(wire, topic) == 0


def test_records_without_key_are_refused_by_a_compacted_topic(broker: Broker, wire: Wire) -> None:
    topic = broker.create_topic(config={"cleanup.policy": "compact"})
    assert produce(wire, topic, bytes(build_batch([RecordInput(None, b"v", 1)]))).error_code == ErrorCode.INVALID_RECORD
    assert produce(wire, topic, bytes(build_batch([RecordInput(b"k", b"v", 1)]))).error_code == ErrorCode.NONE


def test_a_decompression_bomb_is_refused_where_records_must_be_read(broker: Broker, wire: Wire) -> None:
    topic = broker.create_topic(config={"cleanup.policy": "compact"})
    bomb = build_batch([RecordInput(b"k", bytes(200_000_000), 1)], codec=Codec.ZSTD)
    assert len(bomb) < 100_000
    assert produce(wire, topic, bytes(bomb)).error_code == ErrorCode.INVALID_RECORD


def test_illegal_acks_and_unknown_partitions(broker: Broker, wire: Wire) -> None:
    topic = broker.create_topic()
    assert produce(wire, topic, bytes(batch()), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert produce(wire, topic, bytes(batch()), partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(wire, "not-there", bytes(batch())).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert end_offset(wire, topic) == 0


def test_too_few_replicas_refuse_acks_all_only(broker: Broker, wire: Wire) -> None:
    topic = broker.create_topic(config={"min.insync.replicas": "2"})
    assert produce(wire, topic, bytes(batch()), acks=-1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert produce(wire, topic, bytes(batch()), acks=1).error_code == ErrorCode.NONE


def test_acks_0_has_no_answer_and_an_error_closes(broker: Broker) -> None:
    topic = broker.create_topic()
    data = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch()))
    with Wire(broker.bootstrap_servers) as wire:
        wire.send(
            ProduceRequest(acks=0, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]), 9
        )
        assert end_offset(wire, topic) == 1
        wire.send(
            ProduceRequest(acks=0, topic_data=[ProduceRequest.TopicProduceData(name="nope", partition_data=[data])]), 9
        )
        assert is_closed(wire)


def test_fetch_out_of_range_wrong_epoch_and_unknown_topic(broker: Broker, wire: Wire) -> None:
    topic = broker.create_topic()
    produce(wire, topic, bytes(batch()))

    def fetch(offset: int = 0, epoch: int = -1, name: str = topic) -> int:
        partition = FetchRequest.FetchPartition(
            partition=0, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1000
        )
        request = FetchRequest(
            max_wait_ms=60_000, min_bytes=1, topics=[FetchRequest.FetchTopic(topic=name, partitions=[partition])]
        )
        return wire.call(request, 11, FetchResponse).responses[0].partitions[0].error_code

    assert fetch() == ErrorCode.NONE
    assert fetch(offset=2) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(offset=-1) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(epoch=9) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert fetch(name="not-there") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("../etc", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("snow man ☃", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("taken", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("dotted_name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_topic_names_that_are_not_allowed(broker: Broker, wire: Wire, name: str, code: ErrorCode) -> None:
    topics = [
        CreateTopicsRequest.CreatableTopic(name=known, num_partitions=1, replication_factor=1)
        for known in ("taken", "dotted.name")
    ]
    wire.call(CreateTopicsRequest(topics=topics), 7, CreateTopicsResponse)
    topics = [CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    answer = wire.call(CreateTopicsRequest(topics=topics), 7, CreateTopicsResponse).topics[0]
    assert answer.error_code == code
    assert answer.error_message


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"num_partitions": 0, "replication_factor": 1}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": 1, "replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"num_partitions": 1, "replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"num_partitions": 1_000_000, "replication_factor": 1}, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_topic_shapes_that_are_not_allowed(wire: Wire, fields: dict[str, int], code: ErrorCode) -> None:
    topics = [CreateTopicsRequest.CreatableTopic(name="odd-shape", **fields)]
    answer = wire.call(CreateTopicsRequest(topics=topics), 7, CreateTopicsResponse).topics[0]
    assert answer.error_code == code
    found = wire.call(MetadataRequest(topics=None), 9, MetadataResponse)
    assert "odd-shape" not in [topic.name for topic in found.topics]
