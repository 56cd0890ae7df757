"""Partitions follow the metadata: made, led, configured, deleted, set aside; and the upkeep that a node drives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tidelog.kernel.errors import DiskFullError
from tidelog.log.directory import LogDirectory
from tidelog.log.meta_properties import MetaProperties
from tidelog.metadata.image import MetadataDelta, MetadataImage
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.node.config import load
from tidelog.protocol.batch import RecordInput, build_batch, read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import records_metadata as r
from tidelog.replication.home import Home
from tidelog.replication.housekeeping import Housekeeping
from tidelog.replication.log_config import log_config
from tidelog.replication.partition import Partition
from tidelog.replication.partitions import Partitions
from tidelog.sim.disk import DiskFaults, SimDisk, SimFile
from tidelog.sim.loop import run

VALUES = load(None, {}, ["node.id=1"]).values


class Clock:
    now_ms = 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_s(self) -> float:
        return self.now_ms / 1000


class World:
    """The metadata and the partitions of node 1 behind it; `restart` opens the same disk again."""

    def __init__(self, disk: SimDisk | None = None) -> None:
        self.disk = disk or SimDisk(Random(3))
        self.clock = Clock()
        self.publisher = MetadataPublisher()
        self.open()

    def open(self) -> None:
        self.directory = LogDirectory.open(self.disk, "data")
        if self.directory.meta is None:
            self.directory.format(MetaProperties("cluster", 1, b"d" * 16))
        self.home = Home(self.disk, self.clock, self.directory)
        self.partitions = Partitions([self.home], self.clock, Random(5), 1, is_synced=False)
        self.housekeeping = Housekeeping(self.partitions, self.disk, self.clock)
        self.partitions.load(self.publisher.image, VALUES)

    def apply(self, *records: Any) -> MetadataDelta:
        delta = self.publisher.apply(records, self.publisher.image.offset + 1, 1)
        self.partitions.on_delta(delta, VALUES)
        return delta

    def create(
        self, name: str, count: int = 1, replicas: tuple[int, ...] = (1,), topic_id: bytes | None = None
    ) -> None:
        topic_id = topic_id or name.encode()[:16].ljust(16, b"-")
        made = [
            r.PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=list(replicas), isr=[1], leader=1, leader_epoch=0
            )
            for index in range(count)
        ]
        self.apply(r.TopicRecord(name=name, topic_id=topic_id), *made)

    def restart(self) -> None:
        self.directory.close(self.clock.now_ms, high_watermarks=self.partitions.high_watermarks(self.home))
        self.open()

    def partition(self, topic: str, index: int = 0) -> Partition:
        found = self.partitions.get(topic, index)
        assert found is not None
        return found

    def names(self) -> list[str]:
        return [name for name in self.disk.list_dir("data") if self.disk.is_dir(f"data/{name}")]


def append(partition: Partition, value: bytes = b"v", timestamp: int = 1_000_000) -> int:
    batch = build_batch([RecordInput(b"k", value, timestamp)])
    return partition.append(batch, read_header(batch), timestamp).base_offset


@pytest.fixture
def world() -> World:
    return World()


# following the metadata


def test_a_created_topic_has_partitions_by_name_and_by_id(world: World) -> None:
    world.create("t", 2)
    assert world.partitions.get_by_id(b"t".ljust(16, b"-"), 1) is world.partition("t", 1)
    assert world.partition("t").log.topic_id == b"t".ljust(16, b"-")
    assert world.partitions.get("t", 2) is None and world.partitions.get_by_id(bytes(16), 0) is None
    assert len(world.partitions) == 2 and world.names() == ["t-0", "t-1"]


def test_partitions_of_other_brokers_are_not_ours(world: World) -> None:
    world.create("elsewhere", replicas=(2, 3))
    assert world.partitions.get("elsewhere", 0) is None
    assert world.names() == []


def test_added_partitions_leave_the_old_ones_alone(world: World) -> None:
    world.create("t")
    old = world.partition("t")
    topic_id = world.publisher.image.topics["t"].topic_id
    world.apply(r.PartitionRecord(partition_id=1, topic_id=topic_id, replicas=[1], isr=[1], leader=1))
    assert world.partition("t") is old
    assert world.partition("t", 1) is not old


def test_a_new_leader_epoch_reaches_the_log_and_who_waits(world: World) -> None:
    world.create("t")
    partition = world.partition("t")
    append(partition)
    woken: list[int] = []
    partition.add_waiter(lambda _, new_bytes: woken.append(new_bytes))
    world.apply(r.PartitionChangeRecord(partition_id=0, topic_id=partition.topic_id, leader=1))
    assert partition.leader_epoch == 1 and woken == [0]
    assert partition.log.leader_epochs.end_offset_for(0, 1) == (0, 1)
    append(partition)
    assert partition.log.latest_epoch == 1
    assert partition.check_epoch(1) == ErrorCode.NONE
    assert partition.check_epoch(-1) == ErrorCode.NONE
    assert partition.check_epoch(0) == ErrorCode.FENCED_LEADER_EPOCH
    assert partition.check_epoch(2) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_deleted_topic_is_gone_at_once_and_its_files_later(world: World) -> None:
    world.create("t", 2)
    partition = world.partition("t")
    woken: list[bool] = []
    partition.add_waiter(lambda changed, _: woken.append(changed.failure != ErrorCode.NONE))
    world.apply(r.RemoveTopicRecord(topic_id=partition.topic_id))
    assert world.partitions.get("t", 0) is None and world.partitions.get_by_id(partition.topic_id, 0) is None
    assert woken == [True]
    assert [name.endswith("-delete") for name in world.names()] == [True, True]
    world.clock.now_ms += 59_999
    run(world.housekeeping.remove_due_files())
    assert len(world.names()) == 2
    world.clock.now_ms += 1
    run(world.housekeeping.remove_due_files())
    assert world.names() == []


def test_a_topic_made_again_begins_anew(world: World) -> None:
    world.create("t")
    append(world.partition("t"))
    world.apply(
        r.RemoveTopicRecord(topic_id=world.partition("t").topic_id),
        r.TopicRecord(name="t", topic_id=b"2" * 16),
        r.PartitionRecord(partition_id=0, topic_id=b"2" * 16, replicas=[1], isr=[1], leader=1, leader_epoch=0),
    )
    again = world.partition("t")
    assert (again.topic_id, again.log.log_end_offset, again.high_watermark) == (b"2" * 16, 0, 0)
    world.restart()
    assert world.partition("t").log.log_end_offset == 0


def test_configs_reach_the_logs_they_are_for(world: World) -> None:
    world.create("t")
    world.create("u")
    config = r.ConfigRecord(resource_type=2, resource_name="t", name="segment.bytes", value="1048576")
    world.apply(config)
    assert world.partition("t").log.config.segment_bytes == 1_048_576
    assert world.partition("u").log.config.segment_bytes == 1 << 30
    config.value = None
    world.apply(config)
    assert world.partition("t").log.config.segment_bytes == 1 << 30


def test_a_new_topic_has_its_configs_from_the_first_moment(world: World) -> None:
    world.apply(
        r.TopicRecord(name="t", topic_id=b"t" * 16),
        r.ConfigRecord(resource_type=2, resource_name="t", name="cleanup.policy", value="compact"),
        r.PartitionRecord(partition_id=0, topic_id=b"t" * 16, replicas=[1], isr=[1], leader=1, leader_epoch=0),
    )
    assert world.partition("t").log.config.cleanup_policy == {"compact"}


def test_a_change_of_the_brokers_configs_reaches_every_log(world: World) -> None:
    world.create("t")
    delta = world.publisher.apply(
        [r.ConfigRecord(resource_type=4, resource_name="", name="log.segment.bytes", value="2000000")], 50, 1
    )
    changed = VALUES.with_dynamic({}, {"log.segment.bytes": "2000000"})
    world.partitions.on_delta(delta, changed)
    assert world.partition("t").log.config.segment_bytes == 2_000_000


# starting


def test_a_restart_finds_what_was_there(world: World) -> None:
    world.create("t", 2)
    append(world.partition("t", 1))
    world.restart()
    assert world.partition("t", 1).high_watermark == 1
    assert world.partition("t", 0).high_watermark == 0


def test_what_the_metadata_does_not_know_is_set_aside_and_kept(world: World, caplog: Any) -> None:
    world.create("known", 2)
    world.create("unknown")
    append(world.partition("unknown"), b"precious")
    image = world.publisher.image
    topics = {
        "known": type(image.topics["known"])(
            "known", image.topics["known"].topic_id, {0: image.topics["known"].partitions[0]}
        )
    }
    world.directory.close(world.clock.now_ms, high_watermarks=world.partitions.high_watermarks(world.home))
    world.publisher.image = MetadataImage(topics=topics, topic_names={image.topics["known"].topic_id: "known"})
    world.open()
    assert [(p.topic, p.index) for p in world.partitions] == [("known", 0)]
    stray = [name for name in world.names() if name.endswith("-stray")]
    assert [name.split(".")[0] for name in stray] == ["known-1", "unknown-0"]
    assert "unknown-0 is not in the metadata: kept as data/unknown-0." in caplog.text
    (aside,) = [name for name in stray if name.startswith("unknown")]
    assert b"precious" in (world.disk.read_file(f"data/{aside}/{0:020d}.log") or b"")


def test_what_was_set_aside_is_named_at_each_start(world: World, caplog: Any) -> None:
    world.create("t", 7)
    world.directory.close(world.clock.now_ms, high_watermarks=world.partitions.high_watermarks(world.home))
    world.publisher.image = MetadataImage()
    world.open()
    assert "set aside by an earlier start" not in caplog.text
    for _ in range(2):
        caplog.clear()
        world.restart()
        (line,) = caplog.messages
        assert line.startswith("set aside by an earlier start, which did not know them: data/t-0.")
        assert line.endswith(" and 2 more") and line.count("-stray") == 5


def test_a_directory_of_another_topic_of_that_name_is_set_aside(world: World) -> None:
    """Deleted and made again while this node was away."""
    world.create("t")
    append(world.partition("t"))
    world.directory.close(world.clock.now_ms, high_watermarks=world.partitions.high_watermarks(world.home))
    world.publisher = MetadataPublisher()
    world.publisher.apply(
        [
            r.TopicRecord(name="t", topic_id=b"new".ljust(16)),
            r.PartitionRecord(partition_id=0, topic_id=b"new".ljust(16), replicas=[1], isr=[1], leader=1),
        ],
        0,
        1,
    )
    world.open()
    assert world.partition("t").log.log_end_offset == 0
    assert len([name for name in world.names() if name.endswith("-stray")]) == 1


def test_a_full_disk_does_not_stop_those_that_are_there(caplog: Any) -> None:
    """The record is committed, so the topic exists; its partition opens when there is room."""
    world = World(SimDisk(Random(3), DiskFaults(capacity_bytes=3_100)))
    world.create("first")
    with pytest.raises(DiskFullError):
        while True:
            append(world.partition("first"), b"")
    end = world.partition("first").log.log_end_offset
    world.create("second")
    assert world.partitions.get("second", 0) is None
    assert "no room for second-0" in caplog.text
    assert world.partition("first").log.log_end_offset == end
    assert world.partitions.open_unserved(world.publisher.image, VALUES) == 0
    assert caplog.text.count("no room for second-0") == 1, "not once a second"
    world.disk.faults = DiskFaults()
    assert world.partitions.open_unserved(world.publisher.image, VALUES) == 1
    append(world.partition("second"))


def test_room_does_not_open_a_topic_whose_creation_is_yet_to_be_followed() -> None:
    """The image is ahead: the topic was deleted and made again, and the deltas are still being followed."""
    world = World(SimDisk(Random(3), DiskFaults(capacity_bytes=100)))
    world.create("t")
    assert world.partitions.get("t", 0) is None
    world.disk.faults = DiskFaults()
    old = world.publisher.image
    (topic,) = old.topics.values()
    ahead = replace(old, topics={"t": replace(topic, topic_id=b"n" * 16)})
    assert world.partitions.open_unserved(ahead, VALUES) == 0
    assert world.partitions.open_unserved(old, VALUES) == 1


# upkeep


def test_retention_takes_old_segments_and_writes_the_recovery_points_first(world: World) -> None:
    """A power cut may bring one of several deleted segments back: a recovery point behind it must be on disk."""
    world.create("t")
    world.apply(
        r.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1000"),
        r.ConfigRecord(resource_type=2, resource_name="t", name="segment.bytes", value="1048576"),
    )
    partition = world.partition("t")
    for _ in range(4):
        append(partition, bytes(700_000))
    partition.log.flush()
    world.clock.now_ms += 5_000
    world.disk.trace = trace = []
    assert run(world.housekeeping.apply_retention()) == 4
    assert partition.log_start_offset == 4
    checkpoint = next(n for n, line in enumerate(trace) if "rename data/recovery-point-offset-checkpoint.tmp" in line)
    first = next(n for n, line in enumerate(trace) if ".log.deleted" in line)
    assert checkpoint < first
    assert b"t 0 4" in (world.disk.read_file("data/recovery-point-offset-checkpoint") or b"")


def test_retention_does_not_wait_on_the_loop_for_times_that_are_not_in_memory(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create("t")
    world.apply(
        r.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1000"),
        r.ConfigRecord(resource_type=2, resource_name="t", name="segment.bytes", value="1048576"),
    )
    for _ in range(3):
        append(world.partition("t"), bytes(700_000))
    world.restart()
    world.clock.now_ms += 5_000
    world.disk.faults.cold_reads = 1.0
    waited: list[str] = []
    read = SimFile.read

    def watched(self: SimFile, position: int, length: int) -> bytes:
        waited.append(self.path)
        return read(self, position, length)

    monkeypatch.setattr(SimFile, "read", watched)
    assert run(world.housekeeping.apply_retention()) == 3
    assert waited == []


def test_retention_with_nothing_to_do_writes_nothing(world: World) -> None:
    world.create("t")
    append(world.partition("t"))
    before = world.disk.operations
    assert run(world.housekeeping.apply_retention()) == 0
    assert world.disk.operations == before


def test_a_full_disk_in_one_partition_does_not_keep_retention_from_the_others(world: World) -> None:
    for name in "ab":
        world.create(name)
        world.apply(r.ConfigRecord(resource_type=2, resource_name=name, name="retention.ms", value="1000"))
        append(world.partition(name))

    def broken(*_: Any) -> Iterator[Any]:
        raise DiskFullError("cannot create: No space left on device")

    world.clock.now_ms += 5_000
    log = world.partition("a").log
    original, type(log).roll = type(log).roll, lambda self, now: broken() if self.topic == "a" else original(self, now)  # type: ignore[method-assign]
    try:
        assert run(world.housekeeping.apply_retention()) == 1
    finally:
        type(log).roll = original  # type: ignore[method-assign]
    assert world.partition("a").log.log_start_offset == 0


def test_checkpoints_hold_what_the_next_start_needs(world: World) -> None:
    world.create("t", 2)
    for _ in range(3):
        append(world.partition("t", 1))
    world.partition("t", 1).log.maybe_increment_log_start(2)
    for partition in world.partitions:
        partition.log.flush()
    run(world.housekeeping.checkpoint())
    assert world.disk.read_file("data/replication-offset-checkpoint") == b"0\n2\nt 0 0\nt 1 3\n"
    assert world.disk.read_file("data/recovery-point-offset-checkpoint") == b"0\n2\nt 0 0\nt 1 3\n"
    assert world.disk.read_file("data/log-start-offset-checkpoint") == b"0\n1\nt 1 2\n"


# one partition


def test_an_append_moves_the_high_watermark_and_tells_how_many_bytes(world: World) -> None:
    world.create("t")
    partition = world.partition("t")
    told: list[int] = []

    def waiter(_: Partition, new_bytes: int) -> None:
        told.append(new_bytes)

    partition.add_waiter(waiter)
    append(partition)
    assert partition.high_watermark == partition.last_stable_offset == 1
    assert told == [partition.log.size_bytes]
    partition.remove_waiter(waiter)
    partition.remove_waiter(waiter)
    append(partition)
    assert len(told) == 1


def test_a_duplicate_wakes_nobody(world: World) -> None:
    world.create("t")
    partition = world.partition("t")
    told: list[int] = []
    partition.add_waiter(lambda _, new_bytes: told.append(new_bytes))
    for _ in range(2):
        batch = build_batch([RecordInput(b"k", b"v", 1)], producer_id=4, producer_epoch=0, base_sequence=0)
        result = partition.append(batch, read_header(batch), 1)
    assert (result.duplicate, result.base_offset, len(told)) == (True, 0, 1)


def test_waiters_may_go_while_they_are_told(world: World) -> None:
    world.create("t")
    partition = world.partition("t")
    told: list[str] = []

    def once(_: Partition, __: int) -> None:
        told.append("once")
        partition.remove_waiter(once)

    partition.add_waiter(once)
    partition.add_waiter(lambda _, __: told.append("always"))
    append(partition)
    append(partition)
    assert told == ["once", "always", "always"]


def test_configs_of_a_topic_become_those_of_its_log() -> None:
    config = log_config(
        {
            "cleanup.policy": "compact,delete",
            "compression.type": "zstd",
            "compression.zstd.level": "7",
            "max.message.bytes": "5",
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": "-1",
            "retention.bytes": "99",
            "segment.ms": "77",
            "min.insync.replicas": "2",
        },
        VALUES,
    )
    assert (config.cleanup_policy, config.compression_type, config.compression_zstd_level) == (
        {"compact", "delete"},
        "zstd",
        7,
    )
    assert (config.max_message_bytes, config.message_timestamp_type, config.min_insync_replicas) == (
        5,
        "LogAppendTime",
        2,
    )
    assert (config.retention_ms, config.retention_bytes, config.segment_ms) == (-1, 99, 77)
    assert log_config({}, VALUES).file_delete_delay_ms == 60_000


def test_a_large_deleted_topic_is_gone_in_one_go_of_many_turns(world: World) -> None:
    world.create("t", 50)
    topic_id = world.partition("t").topic_id
    world.apply(r.RemoveTopicRecord(topic_id=topic_id))
    world.clock.now_ms += 60_000
    removed: list[list[str]] = []
    real = world.directory.take_due
    world.directory.take_due = lambda *args, **limit: removed.append(real(*args, **limit)) or removed[-1]  # type: ignore[method-assign,func-returns-value]
    run(world.housekeeping.remove_due_files())
    assert world.names() == [] and len(removed) > 1


def test_deleted_files_are_removed_beside_the_loop_and_nowhere_else(world: World) -> None:
    world.create("t", 2)
    gone, kept = world.partition("t", 0).log, world.partition("t", 1).log
    world.directory.delete_partition("t", 0, unique_hex="0" * 32, now_ms=0)
    kept._removals.add(0, [f"{kept.directory}/{0:020}.log.deleted"])
    asked: list[str] = []

    async def remove_later(paths: Sequence[str]) -> None:
        asked.extend(paths)

    world.disk.remove_later = remove_later  # type: ignore[method-assign,assignment]
    run(world.housekeeping.remove_due_files())
    assert asked == [f"{gone.directory}.{'0' * 32}-delete", f"{kept.directory}/{0:020}.log.deleted"]
    assert world.disk.exists(asked[0]), "who removes it is the disk, when it has time"


def test_a_new_partition_has_its_epoch_on_disk_and_one_that_is_opened_again_waits_for_a_batch() -> None:
    world = World()
    world.create("t")
    path = "data/t-0/leader-epoch-checkpoint"
    assert world.disk.read_file(path) == b"0\n1\n0 0\n"
    topic_id = world.publisher.image.topics["t"].topic_id
    world.restart()
    world.apply(r.PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1))
    assert world.disk.read_file(path) == b"0\n1\n0 0\n", "ten thousand partitions get one whenever their node starts"
    partition = world.partitions.get("t", 0)
    assert partition is not None and partition.log.leader_epochs.latest == 1
