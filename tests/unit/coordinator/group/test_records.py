"""The bytes of `__consumer_offsets`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.group.records import (
    CommittedOffset,
    ForeignRecord,
    GroupRecord,
    GroupRemoved,
    GroupWritten,
    OffsetCommitted,
    OffsetRemoved,
    decode_record,
    encode_record,
)
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.messages.records_group import (
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
)
from tidelog.protocol.records_framing import encode_coordinator_key, encode_coordinator_value

TOPIC_ID = bytes(range(16))
names = st.text(st.characters(codec="utf-8"), max_size=60)
longs = st.integers(-(2**63), 2**63 - 1)
offsets = st.builds(
    CommittedOffset,
    longs,
    st.integers(-1, 2**31 - 1),
    names,
    longs,
    st.just(-1),
    st.sampled_from([bytes(16), TOPIC_ID]),
)


@given(names, names, st.integers(0, 2**31 - 1), offsets)
def test_offset_commits_written_by_hand_are_what_the_codec_writes(
    group: str, topic: str, partition: int, value: CommittedOffset
) -> None:
    key = encode_coordinator_key(OffsetCommitKey(group=group, topic=topic, partition=partition))
    body = encode_coordinator_value(
        OffsetCommitValue(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp=value.commit_ms,
            topic_id=value.topic_id,
        ),
        4,
    )
    record = OffsetCommitted(group, topic, partition, value)
    assert encode_record(record) == (key, body)
    assert decode_record(key, body) == record


def test_an_offset_commit_is_byte_for_byte_what_kafka_wrote() -> None:
    value = CommittedOffset(5, -1, "", 0x1A1E1842151, topic_id=TOPIC_ID)
    _, body = encode_record(OffsetCommitted("g", "t", 0, value))
    expected = "00040000000000000005ffffffff01000001a1e1842151010010" + TOPIC_ID.hex()
    assert body is not None and body.hex() == expected


def test_a_retention_of_the_clients_own_is_kept_in_version_1() -> None:
    value = CommittedOffset(5, -1, "m", 1000, 9000)
    key, body = encode_record(OffsetCommitted("g", "t", 0, value))
    assert body is not None and body[:2] == b"\x00\x01"
    assert decode_record(key, body) == OffsetCommitted("g", "t", 0, value)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group_record_is_read(version: int) -> None:
    member = GroupMetadataValue.MemberMetadata(
        member_id="a", client_id="c", client_host="/127.0.0.1", session_timeout=10, subscription=b"s", assignment=b"a"
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=3, protocol="range", leader="a", members=[member])
    key, _ = encode_record(GroupRemoved("g"))
    record = decode_record(key, encode_coordinator_value(value, version))
    assert record == GroupWritten("g", value)


def test_groups_are_written_in_version_3_as_kafka_does() -> None:
    _, body = encode_record(GroupWritten("g", GroupMetadataValue(protocol=None, leader=None)))
    assert body is not None and body[:2] == b"\x00\x03"


@pytest.mark.parametrize("record", [OffsetRemoved("g", "t", 7), GroupRemoved("g")])
def test_tombstones_have_no_value(record: GroupRecord) -> None:
    key, body = encode_record(record)
    assert body is None
    assert decode_record(key, None) == record


def test_offsets_of_the_oldest_kind_are_read() -> None:
    key = encode_coordinator_key(LegacyOffsetCommitKey(group="g", topic="t", partition=1))
    body = encode_coordinator_value(LegacyOffsetCommitValue(offset=4, metadata="m", commit_timestamp=9), 0)
    assert decode_record(key, body) == OffsetCommitted("g", "t", 1, CommittedOffset(4, -1, "m", 9))


def test_kinds_and_versions_of_newer_nodes_are_left_alone() -> None:
    key = encode_coordinator_key(ShareGroupMetadataKey(group_id="g"))
    value = encode_coordinator_value(ShareGroupMetadataValue(epoch=1), 0)
    assert decode_record(key, value) == ForeignRecord("g", key, True)
    assert decode_record(key, None) == ForeignRecord("g", key, False)
    assert decode_record(b"\x7f\x00something", b"") is None
    key, body = encode_record(GroupWritten("g", GroupMetadataValue(protocol=None, leader=None)))
    assert decode_record(key, b"\x00\x09" + (body or b"")[2:]) is None


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x01\x00", b"\x00\x02\x00\x05g"])
def test_bytes_that_are_no_record_are_refused(key: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_record(key, None)
