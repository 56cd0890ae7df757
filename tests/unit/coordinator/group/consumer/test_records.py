"""The records of consumer groups: what is written is read again, and the bytes are the codec's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.group.consumer.model import ClassicSide, Current, Profile, Resolved
from tidelog.coordinator.group.consumer.records import (
    ConsumerRecord,
    GroupEpoch,
    MemberCurrent,
    MemberProfile,
    MemberTarget,
    PartitionMetadata,
    ResolvedRegex,
    TargetEpoch,
)
from tidelog.coordinator.group.records import decode_record, encode_record
from tidelog.protocol.messages import records_group as r
from tidelog.protocol.records_framing import encode_coordinator_key, encode_coordinator_value

NAMES = st.text("aé-_", min_size=1, max_size=8)
TOPICS = st.binary(min_size=16, max_size=16)
INDEXES = st.integers(0, 2**31 - 1)
EPOCHS = st.integers(0, 2**31 - 1)
HELD = st.dictionaries(TOPICS, st.dictionaries(INDEXES, EPOCHS, min_size=1, max_size=150), max_size=3)
TARGETS = st.dictionaries(TOPICS, st.frozensets(INDEXES, min_size=1, max_size=150), max_size=3)
CURRENTS = st.builds(Current, st.integers(-2, 2**31 - 1), EPOCHS, st.sampled_from([0, 1, 2]), HELD, HELD)
CLASSIC = ClassicSide(6_000, (("range", b"m"), ("sticky", b"")))


@pytest.mark.parametrize(
    "record",
    [
        GroupEpoch("g", (7, -(2**63))),
        GroupEpoch("g", None),
        PartitionMetadata("g", False),
        MemberProfile("g", "m", Profile("i", "r", "c", "/h", ("t", "u"), "x.*", 5_000, "range")),
        MemberProfile("g", "m", Profile(None, None, "", "", (), "", -1, None, CLASSIC)),
        MemberProfile("g", "m", None),
        TargetEpoch("g", (7, 1_700_000_000_000)),
        TargetEpoch("g", None),
        MemberTarget("g", "m", None),
        MemberCurrent("g", "m", None),
        ResolvedRegex("g", "x.*", Resolved(frozenset({"x1", "x2"}), 42, 1_700_000_000_000)),
        ResolvedRegex("g", "x.*", None),
    ],
)
def test_what_is_written_is_read_again(record: ConsumerRecord) -> None:
    assert decode_record(*encode_record(record)) == record


@given(group=NAMES, member=NAMES, target=TARGETS)
def test_targets_are_the_codecs_bytes(group: str, member: str, target: dict[bytes, frozenset[int]]) -> None:
    record = MemberTarget(group, member, target)
    key, value = encode_record(record)
    assert key == encode_coordinator_key(r.ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member))
    body = r.ConsumerGroupTargetAssignmentMemberValue
    parts = [
        body.TopicPartition(topic_id=topic_id, partitions=sorted(indexes))
        for topic_id, indexes in sorted(target.items())
    ]
    assert value == encode_coordinator_value(body(topic_partitions=parts), 0)
    assert decode_record(key, value) == record


@given(group=NAMES, member=NAMES, current=CURRENTS)
def test_assignments_are_the_codecs_bytes(group: str, member: str, current: Current) -> None:
    record = MemberCurrent(group, member, current)
    key, value = encode_record(record)
    assert key == encode_coordinator_key(r.ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member))
    body = r.ConsumerGroupCurrentMemberAssignmentValue

    def parts(held: object) -> list[r.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
        assert isinstance(held, dict)
        return [
            body.TopicPartitions(
                topic_id=topic_id,
                partitions=sorted(epochs),
                assignment_epochs=[epochs[index] for index in sorted(epochs)],
            )
            for topic_id, epochs in sorted(held.items())
        ]

    expected = body(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        assigned_partitions=parts(current.assigned),
        partitions_pending_revocation=parts(current.revoking),
    )
    assert value == encode_coordinator_value(expected, 0)
    assert decode_record(key, value) == record


def test_partitions_without_epochs_have_the_member_s_own() -> None:
    """As Apache Kafka before 4.3 wrote them."""
    body = r.ConsumerGroupCurrentMemberAssignmentValue
    part = body.TopicPartitions(topic_id=b"t" * 16, partitions=[3, 1])
    value = encode_coordinator_value(body(member_epoch=5, state=9, assigned_partitions=[part]), 0)
    key = encode_coordinator_key(r.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"))
    record = decode_record(key, value)
    assert record == MemberCurrent("g", "m", Current(5, 0, 127, {b"t" * 16: {3: 5, 1: 5}}))
