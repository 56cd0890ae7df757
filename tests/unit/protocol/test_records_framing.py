"""Records of the internal topics, against bytes that Apache Kafka 4.3.1 wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.messages.records_group import (
    ConsumerGroupMemberMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.protocol.messages.records_metadata import FeatureLevelRecord, PartitionChangeRecord, TopicRecord
from tidelog.protocol.messages.records_share import ShareUpdateKey
from tidelog.protocol.messages.records_transaction import TransactionLogKey, TransactionLogValue
from tidelog.protocol.records_framing import (
    SHARE,
    TRANSACTION,
    decode_coordinator_key,
    decode_coordinator_value,
    decode_metadata_record,
    encode_coordinator_key,
    encode_coordinator_value,
    encode_metadata_record,
)


def test_a_metadata_record_carries_frame_type_and_version() -> None:
    record = FeatureLevelRecord(name="metadata.version", feature_level=30)
    value = encode_metadata_record(record, 0)
    assert value == b"\x01\x0c\x00" + b"\x11metadata.version" + b"\x00\x1e" + b"\x00"
    assert decode_metadata_record(value) == (record, 0)


def test_the_version_comes_back_with_the_record() -> None:
    record = PartitionChangeRecord(partition_id=1, topic_id=bytes(range(16)), isr=[1], leader=-1)
    assert decode_metadata_record(encode_metadata_record(record, 2)) == (record, 2)


@pytest.mark.parametrize("value", [b"\x01\x63\x00\x00", b"\x01\x02\x09\x00"])
def test_a_metadata_record_of_a_newer_kafka_is_none(value: bytes) -> None:
    assert decode_metadata_record(value) is None


@pytest.mark.parametrize("value", [b"", b"\x01", b"\x01\x02", b"\x02\x14\x00\x00", b"\x01\x02\x00\x7f"])
def test_a_broken_metadata_record_is_refused(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_metadata_record(value)


@given(st.binary(max_size=30))
def test_any_bytes_are_records_or_none_or_refused(data: bytes) -> None:
    try:
        decode_metadata_record(data)
        key = decode_coordinator_key(data)
        if key is not None:
            decode_coordinator_value(key, data)
    except ProtocolError:
        pass


def test_an_offset_commit_as_kafka_stores_it() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    stored_key = bytes.fromhex("0001 0001 67 0001 74 00000003")
    assert encode_coordinator_key(key) == stored_key
    assert decode_coordinator_key(memoryview(stored_key)) == key

    topic_id = bytes(range(16))
    value = OffsetCommitValue(offset=5, leader_epoch=-1, commit_timestamp=0x1A1E1842151, topic_id=topic_id)
    stored = bytes.fromhex("0004 0000000000000005 ffffffff 01 000001a1e1842151 01 00 10") + topic_id
    assert encode_coordinator_value(value, 4) == stored
    assert decode_coordinator_value(key, memoryview(stored)) == (value, 4)


def test_a_member_that_is_not_classic_says_so_in_a_tag() -> None:
    value = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert encode_coordinator_value(value, 0).endswith(b"\x01\x00\x01\x00")


def test_each_topic_has_its_own_record_types() -> None:
    key = TransactionLogKey(transactional_id="tx-1")
    stored = encode_coordinator_key(key)
    assert stored == b"\0\0\0\x04tx-1"
    assert decode_coordinator_key(stored, TRANSACTION) == key
    value = TransactionLogValue(producer_id=7, transaction_partitions=None, next_producer_id=8)
    assert decode_coordinator_value(key, encode_coordinator_value(value, 1)) == (value, 1)
    share = ShareUpdateKey(group_id="g", topic_id=bytes(16), partition=1)
    assert decode_coordinator_key(encode_coordinator_key(share), SHARE) == share


def test_what_a_newer_kafka_wrote_is_none() -> None:
    assert decode_coordinator_key(b"\x7f\xff\0") is None
    assert decode_coordinator_value(GroupMetadataKey(group="g"), b"\x00\x63\0") is None


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\x02", b"\0\x02\0\x05g"])
def test_a_broken_key_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_coordinator_key(data)


def test_a_broken_value_is_refused() -> None:
    good = encode_coordinator_value(GroupMetadataValue(protocol_type="consumer"), 3)
    for cut in range(len(good)):
        with pytest.raises(ProtocolError):
            decode_coordinator_value(GroupMetadataKey(), good[:cut])
    with pytest.raises(ProtocolError):
        decode_coordinator_value(GroupMetadataKey(), good + b"\0")


def test_a_topic_record_round_trips() -> None:
    record = TopicRecord(name="orders", topic_id=bytes(range(16)))
    assert decode_metadata_record(memoryview(encode_metadata_record(record, 0))) == (record, 0)
