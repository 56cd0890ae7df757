"""OffsetFetch 1-10."""

from __future__ import annotations

import pytest

from tests.unit.coordinator.fakes import World
from tidelog.coordinator.group.records import CommittedOffset, OffsetCommitted
from tidelog.protocol.codec import decode, encode
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

Group = OffsetFetchRequest.OffsetFetchRequestGroup
Topics = OffsetFetchRequest.OffsetFetchRequestTopics
UNKNOWN_ID = b"\x09" * 16


def commit(world: World, group: str, version: int = 9, **offsets: int) -> OffsetCommitResponse:
    """Names are the topic and the partition, as in t0."""
    answers: list[OffsetCommitResponse] = []
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=where[0] if version < 10 else "",
                topic_id=(world.topics.topic_id(where[0]) or UNKNOWN_ID) if version >= 10 else bytes(16),
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=int(where[1]), committed_offset=offset, committed_leader_epoch=3
                    )
                ],
            )
            for where, offset in offsets.items()
        ],
    )
    world.groups.commit_offsets(request, version, answers.append)
    world.settle()
    return answers[0]


def fetch(world: World, version: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Through the codec, so that the answer fits its version."""
    answers: list[OffsetFetchResponse] = []
    world.groups.fetch_offsets(request, version, answers.append)
    return decode(OffsetFetchResponse, version, encode(answers[0], version))


def single(group: str, *partitions: int) -> OffsetFetchRequest:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=list(partitions))
    return OffsetFetchRequest(group_id=group, topics=[topic])


@pytest.mark.parametrize("version", range(1, 8))
def test_some_partitions_of_one_group(version: int) -> None:
    world = World()
    commit(world, "g", t0=5)
    answer = fetch(world, version, single("g", 0, 1))
    (topic,) = answer.topics
    found = [(entry.partition_index, entry.committed_offset, entry.error_code) for entry in topic.partitions]
    assert found == [(0, 5, 0), (1, -1, 0)]
    assert [entry.committed_leader_epoch for entry in topic.partitions] == [3 if version >= 5 else -1, -1]
    assert [entry.metadata for entry in topic.partitions] == ["", ""]


@pytest.mark.parametrize("version", range(2, 8))
def test_all_partitions_of_one_group(version: int) -> None:
    world = World()
    commit(world, "g", t0=5, u1=6)
    answer = fetch(world, version, OffsetFetchRequest(group_id="g", topics=None))
    found = [(topic.name, entry.partition_index) for topic in answer.topics for entry in topic.partitions]
    assert found == [("t", 0), ("u", 1)]


@pytest.mark.parametrize("version", [8, 9])
def test_many_groups_at_once_in_their_order(version: int) -> None:
    world = World(partitions=3)
    for number, group in enumerate(("a", "b", "c")):
        commit(world, group, t0=number)
    asked = [Group(group_id=name, topics=[Topics(name="t", partition_indexes=[0])]) for name in ("c", "a", "none")]
    asked.append(Group(group_id="b", topics=None))
    answer = fetch(world, version, OffsetFetchRequest(groups=asked))
    found = [(group.group_id, group.topics[0].partitions[0].committed_offset) for group in answer.groups]
    assert found == [("c", 2), ("a", 0), ("none", -1), ("b", 1)]


def test_version_10_speaks_of_topics_by_id() -> None:
    world = World()
    commit(world, "g", version=10, t0=5)
    topic_id = world.topics.topic_id("t")
    assert topic_id is not None
    asked = [Topics(topic_id=topic_id, partition_indexes=[0]), Topics(topic_id=UNKNOWN_ID, partition_indexes=[0])]
    answer = fetch(world, 10, OffsetFetchRequest(groups=[Group(group_id="g", topics=asked)]))
    found = [
        (topic.topic_id, entry.committed_offset, entry.error_code)
        for topic in answer.groups[0].topics
        for entry in topic.partitions
    ]
    assert found == [(topic_id, 5, 0), (UNKNOWN_ID, -1, ErrorCode.UNKNOWN_TOPIC_ID)]


def test_version_10_leaves_out_topics_that_have_no_id_any_more() -> None:
    world = World()
    commit(world, "g", t0=5, u0=6)
    del world.topics.partitions["t"]
    answer = fetch(world, 10, OffsetFetchRequest(groups=[Group(group_id="g", topics=None)]))
    assert [topic.topic_id for topic in answer.groups[0].topics] == [world.topics.topic_id("u")]


def test_version_10_commits_by_id_and_refuses_ids_that_nobody_knows() -> None:
    world = World()
    answer = commit(world, "g", version=10, t0=5, x0=6, t9=7)
    codes = [entry.error_code for topic in answer.topics for entry in topic.partitions]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_an_offset_of_a_topic_that_was_made_again_is_not_given_for_the_new_one() -> None:
    world = World()
    world.machine.replay(OffsetCommitted("g", "t", 0, CommittedOffset(5, -1, "", 0, topic_id=UNKNOWN_ID)), 0, -1)
    world.machine.replay(OffsetCommitted("g", "t", 1, CommittedOffset(6, -1, "", 0)), 1, -1)
    answer = fetch(world, 7, single("g", 0, 1))
    assert [entry.committed_offset for entry in answer.topics[0].partitions] == [-1, 6]


def test_offsets_of_open_transactions_are_unstable_for_those_who_ask() -> None:
    world = World()
    commit(world, "g", t0=5)
    world.machine.replay(OffsetCommitted("g", "t", 0, CommittedOffset(9, -1, "", 0)), 1, 77)
    request = single("g", 0)
    assert fetch(world, 7, request).topics[0].partitions[0].committed_offset == 5
    request.require_stable = True
    unstable = fetch(world, 7, request).topics[0].partitions[0]
    assert (unstable.committed_offset, unstable.error_code) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    world.machine.end_transaction(77, committed=True)
    assert fetch(world, 7, request).topics[0].partitions[0].committed_offset == 9


def test_an_aborted_transaction_leaves_no_offset() -> None:
    world = World()
    world.machine.replay(OffsetCommitted("g", "t", 0, CommittedOffset(9, -1, "", 0)), 1, 77)
    world.machine.end_transaction(77, committed=False)
    assert fetch(world, 7, single("g", 0)).topics[0].partitions[0].committed_offset == -1


def test_of_two_commits_the_later_in_the_log_wins_whenever_its_marker_came() -> None:
    world = World()
    world.machine.replay(OffsetCommitted("g", "t", 0, CommittedOffset(1, -1, "", 0)), 1, 77)
    world.machine.replay(OffsetCommitted("g", "t", 0, CommittedOffset(2, -1, "", 0)), 2, -1)
    world.machine.end_transaction(77, committed=True)
    assert fetch(world, 7, single("g", 0)).topics[0].partitions[0].committed_offset == 2


def test_before_version_2_the_error_of_a_group_stands_at_each_partition() -> None:
    world = World()
    world.runtime.unload(0, world.epoch)
    answer = fetch(world, 1, single("g", 0, 1))
    assert [entry.error_code for entry in answer.topics[0].partitions] == [ErrorCode.NOT_COORDINATOR] * 2
    answer = fetch(world, 2, single("g", 0, 1))
    assert (answer.error_code, answer.topics) == (ErrorCode.NOT_COORDINATOR, [])


def test_metadata_that_is_too_long_is_refused_for_its_partition() -> None:
    world = World(offset_metadata_max_bytes=4)
    answers: list[OffsetCommitResponse] = []
    texts = ["four", "fiver", "😀😀", "😀😀!", None]
    partition = OffsetCommitRequest.OffsetCommitRequestPartition
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(
        name="t",
        partitions=[partition(partition_index=index % 4, committed_metadata=text) for index, text in enumerate(texts)],
    )
    world.groups.commit_offsets(OffsetCommitRequest(group_id="g", topics=[topic]), 8, answers.append)
    world.settle()
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert [entry.error_code for entry in answers[0].topics[0].partitions] == [0, too_large, 0, too_large, 0]


def test_commits_of_one_turn_are_one_batch() -> None:
    world = World()
    answers: list[OffsetCommitResponse] = []
    for number in range(10):
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name="t", partitions=[OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=number)]
        )
        world.groups.commit_offsets(OffsetCommitRequest(group_id=f"g{number}", topics=[topic]), 8, answers.append)
    world.settle()
    assert len(answers) == 10
    assert len(world.log.batches) == 1
