"""An internal partition as a coordinator's log: appended, committed, read back whole or not at all."""

from __future__ import annotations

import pytest

from tests.unit.replication.test_partitions import World, append
from tidelog.kernel.errors import ProtocolError
from tidelog.log.errors import LogError
from tidelog.protocol.batch import iter_records, read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import records_metadata as r
from tidelog.replication.shard_log import PartitionShardLog


@pytest.fixture
def world() -> World:
    world = World()
    world.create("__consumer_offsets")
    return world


def shard_log(world: World) -> PartitionShardLog:
    return PartitionShardLog(world.partition("__consumer_offsets"), world.clock)


def test_batches_are_kafkas_no_producer_but_a_sequence_of_0(world: World) -> None:
    log = shard_log(world)
    assert log.append([(b"k1", b"v1"), (b"k2", None)], 77) == 2
    assert log.append([(b"k3", b"v3")], 78) == log.end_offset == 3
    batches = list(log.read_all())
    headers = [read_header(batch) for batch in batches]
    assert [(h.producer_id, h.producer_epoch, h.base_sequence, h.record_count) for h in headers] == [
        (-1, -1, 0, 2),
        (-1, -1, 0, 1),
    ]
    records = [(record.key, record.value, record.timestamp) for batch in batches for record in iter_records(batch)]
    assert records == [(b"k1", b"v1", 77), (b"k2", None, 77), (b"k3", b"v3", 78)]


def test_a_long_log_is_read_whole_over_segments(world: World) -> None:
    world.apply(
        r.ConfigRecord(resource_type=2, resource_name="__consumer_offsets", name="segment.bytes", value="1048576")
    )
    log = shard_log(world)
    for number in range(12):
        log.append([(b"%d" % number, bytes(400_000))], 1)
    assert len(world.partition("__consumer_offsets").log.segments) > 3
    assert [record.key for batch in log.read_all() for record in iter_records(batch)] == [
        b"%d" % number for number in range(12)
    ]


def test_reading_begins_at_the_logs_start(world: World) -> None:
    log = shard_log(world)
    for number in range(3):
        log.append([(b"%d" % number, b"v")], 1)
    world.partition("__consumer_offsets").log.maybe_increment_log_start(2)
    assert [record.key for batch in log.read_all() for record in iter_records(batch)] == [b"2"]


def test_what_is_committed_is_told_at_once(world: World) -> None:
    log, told = shard_log(world), []
    end = log.append([(b"k", b"v")], 1)
    log.when_committed(end, told.append)
    assert told == [ErrorCode.NONE]


def test_what_is_not_committed_yet_is_told_when_it_is(world: World) -> None:
    log, told = shard_log(world), []
    partition = world.partition("__consumer_offsets")
    log.when_committed(2, told.append)
    append(partition)
    assert told == []
    append(partition)
    assert told == [ErrorCode.NONE]
    append(partition)
    assert told == [ErrorCode.NONE] and not partition._pending


def test_a_deleted_partition_is_nobodys_coordinator(world: World) -> None:
    log, told = shard_log(world), []
    partition = world.partition("__consumer_offsets")
    log.when_committed(9, told.append)
    world.apply(r.RemoveTopicRecord(topic_id=partition.topic_id))
    assert told == [ErrorCode.NOT_COORDINATOR] and not partition._pending


@pytest.mark.parametrize("position", [8, 16, 65])
def test_a_damaged_batch_is_an_error_that_names_the_place_never_less(world: World, position: int) -> None:
    """The coordinator then refuses its groups; answering without them would lose their offsets."""
    log = shard_log(world)
    for number in range(3):
        log.append([(b"%d" % number, b"v")], 1)
    file = world.disk.open(f"data/__consumer_offsets-0/{0:020d}.log")
    content = bytearray(file.read(0, file.size()))
    size = read_header(content).size
    content[size + position] ^= 0x40
    file.truncate(0)
    file.append([content])
    with pytest.raises((ProtocolError, LogError), match="__consumer_offsets-0"):
        list(log.read_all())
