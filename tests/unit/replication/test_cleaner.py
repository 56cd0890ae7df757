"""The cleaner in a node, on virtual time: whom it cleans and when, what it leaves, and what it does about trouble."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from tests.unit.broker.virtual import Peer, on_node
from tests.unit.node.exposition import parse
from tidelog.kernel.errors import JobFailedError
from tidelog.kernel.ports import Disk
from tidelog.log.checkpoints import CLEANER_OFFSETS
from tidelog.log.cleaning.job import CleanJob
from tidelog.log.partition_log import PartitionLog
from tidelog.node.metrics import render
from tidelog.protocol.batch import RecordInput, build_batch, iter_headers, iter_records
from tidelog.replication.cleaner import LogCleaner
from tidelog.testing.simulation import SimulatedWorld

COMPACT = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "400",
    "min.cleanable.dirty.ratio": "0.3",
    "file.delete.delay.ms": "1000",
}
FAST = {"log_cleaner_backoff_ms": "1000", "log_flush_offset_checkpoint_interval_ms": "500"}


def put(peer: Peer, topic: str, count: int, *, keys: int = 3, first: int = 0) -> None:
    for number in range(first, first + count):
        batch = build_batch([RecordInput(b"k%d" % (number % keys), b"%d" % number, 1_000_000 + number)])
        assert peer.produce_batch(topic, bytes(batch)).error_code == 0


def log_of(world: SimulatedWorld, topic: str) -> PartitionLog:
    assert world.node is not None
    partition = world.node.partitions.get(topic, 0)
    assert partition is not None
    return partition.log


def records(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 10_000, end_offset=log.log_end_offset).data
        for position, header in iter_headers(data):
            found += [(one.offset, one.value) for one in iter_records(data[position : position + header.size], header)]
            offset = header.next_offset
    return found


def cleaner_of(world: SimulatedWorld) -> LogCleaner:
    assert world.node is not None
    return world.node.cleaner


async def _cleans(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("c", config=COMPACT)
    await peer.create_topic("d", config={"internal.segment.bytes": "400"})
    put(peer, "c", 40)
    put(peer, "d", 40)
    await asyncio.sleep(10)
    log = log_of(world, "c")
    assert len(records(log)) < 15
    assert dict(records(log)[-3:]) == {37: b"37", 38: b"38", 39: b"39"}
    assert len(records(log_of(world, "d"))) == 40
    assert world.disk.read_file(f"/data/{CLEANER_OFFSETS}") == b"0\n1\nc 0 %d\n" % log.cleaned_to
    assert log.cleaned_to == log.segments[-1].base_offset
    names = world.disk.list_dir("/data/c-0")
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    found = parse(render(world.node))  # type: ignore[arg-type]
    assert found.value("tidelog_log_dirty_ratio", topic="c", partition="0") == 0
    assert found.value("tidelog_log_last_clean_timestamp_seconds", topic="c", partition="0") > 0
    assert found.value("kafka_log_logcleanermanager_uncleanable_partitions_count", logDirectory="/data") == 0
    before = records(log)
    await world.stop()
    assert await world.start()
    log = log_of(world, "c")
    assert records(log) == before
    assert log.cleaned_to > 0


test_a_compacted_topic_is_cleaned_and_others_are_not = on_node(_cleans, **FAST)


async def _cleans_what_nobody_has_synced(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("c", config=COMPACT)
    put(peer, "c", 40)
    assert log_of(world, "c").recovery_point == 0
    await asyncio.sleep(10)
    log = log_of(world, "c")
    assert len(records(log)) < 15
    assert log.recovery_point >= log.cleaned_to > 0


test_in_page_cache_mode_the_cleaner_syncs_what_it_cleans = on_node(
    _cleans_what_nobody_has_synced,
    tidelog_sync_mode="page-cache",
    log_cleaner_backoff_ms="1000",
    log_flush_offset_checkpoint_interval_ms="600000",
)


async def _off(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("c", config=COMPACT)
    put(peer, "c", 40)
    await asyncio.sleep(60)
    assert len(records(log_of(world, "c"))) == 40


test_a_cleaner_that_is_off_cleans_nothing = on_node(_off, **FAST, log_cleaner_enable="false")


async def _worst_first(world: SimulatedWorld, peer: Peer) -> None:
    cleaner = cleaner_of(world)
    for topic in ("a", "b"):
        await peer.create_topic(topic, config=COMPACT)
    put(peer, "a", 60)
    put(peer, "b", 20)
    assert world.node is not None
    await world.node.housekeeping.flush()
    log_of(world, "a").cleaned_to = log_of(world, "a").segments[2].base_offset
    assert await cleaner.clean_worst()
    assert [log.topic for log in cleaner.cleaned] == ["b"]
    assert await cleaner.clean_worst()
    assert [log.topic for log in cleaner.cleaned] == ["b", "a"]
    assert not await cleaner.clean_worst()


test_the_dirtiest_is_cleaned_first = on_node(_worst_first, log_cleaner_backoff_ms="10000000")


async def _uncleanable(world: SimulatedWorld, peer: Peer) -> None:
    from tests.unit.log.stopped import change, flip

    for topic in ("bad", "good"):
        await peer.create_topic(topic, config=COMPACT)
        put(peer, topic, 40)
    change(world.disk, "/data/bad-0/00000000000000000000.log", flip(80))
    await asyncio.sleep(20)
    cleaner = cleaner_of(world)
    assert [log.topic for log in cleaner.uncleanable] == ["bad"]
    assert len(records(log_of(world, "good"))) < 15
    assert log_of(world, "bad").log_end_offset == 40
    found = parse(render(world.node))  # type: ignore[arg-type]
    prefix = "kafka_log_logcleanermanager_uncleanable"
    assert found.value(f"{prefix}_partitions_count", logDirectory="/data") == 1
    assert found.value(f"{prefix}_bytes", logDirectory="/data") == log_of(world, "bad").size_bytes
    assert found.value("tidelog_log_uncleanable", topic="bad", partition="0") == 1
    assert not [name for name in world.disk.list_dir("/data/bad-0") if name.endswith(".cleaned")]


test_one_that_cannot_be_cleaned_is_named_and_the_rest_go_on = on_node(_uncleanable, **FAST)


async def _bug(world: SimulatedWorld, peer: Peer) -> None:
    for topic in ("bad", "good"):
        await peer.create_topic(topic, config=COMPACT)
        put(peer, topic, 60 if topic == "bad" else 40)
    tried: list[float] = []
    step = CleanJob.step

    def planted(job: CleanJob, disk: Disk, give_way: Callable[[], None]) -> object:
        if "bad" in job._order.directory and len(tried) < 3:
            tried.append(asyncio.get_running_loop().time())
            raise JobFailedError("IndexError('planted')", "Traceback, line 17")
        return step(job, disk, give_way)

    with pytest.MonkeyPatch.context() as patch, logged() as lines:
        patch.setattr(CleanJob, "step", planted)
        await asyncio.sleep(4)
        assert len(records(log_of(world, "good"))) < 15, "one that fails shall not keep the others waiting"
        await asyncio.sleep(60)
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert len(pauses) == 2
    assert 2 <= pauses[0] < pauses[1] < 8, "each pause is longer"
    assert not cleaner_of(world).uncleanable
    assert len(records(log_of(world, "bad"))) < 15
    told = [line for line in lines if "cleaning bad-0 failed by a bug of Tidelog's" in line]
    assert len(told) == 3
    assert "IndexError('planted'); it is tried again in 2 s\nTraceback, line 17" in told[0]
    assert parse(render(world.node)).value("tidelog_cleanings_failed_total") == 3  # type: ignore[arg-type]


test_a_bug_of_ours_is_told_with_its_traceback_and_tried_again_later = on_node(_bug, **FAST)


@contextmanager
def logged() -> Iterator[list[str]]:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("tidelog.cleaner")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


async def _slow(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("c", config=COMPACT)
    put(peer, "c", 40)
    size = log_of(world, "c").size_bytes
    begun_s = asyncio.get_running_loop().time()
    assert world.node is not None
    await world.node.housekeeping.flush()
    assert await cleaner_of(world).clean_worst()
    # Read twice, and some of it written.
    assert asyncio.get_running_loop().time() - begun_s > 1.5 * size / 100


test_it_reads_and_writes_no_faster_than_allowed = on_node(
    _slow, log_cleaner_backoff_ms="10000000", log_cleaner_io_max_bytes_per_second="100"
)


async def _deleted(world: SimulatedWorld, peer: Peer) -> None:
    from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

    await peer.create_topic("c", config=COMPACT)
    put(peer, "c", 40)
    assert world.node is not None
    await world.node.housekeeping.flush()
    cleaning = asyncio.ensure_future(cleaner_of(world).clean_worst())
    await asyncio.sleep(5)
    assert not cleaning.done()
    await peer.call(DeleteTopicsRequest(topic_names=["c"], timeout_ms=1000), 4, DeleteTopicsResponse)
    assert not await cleaning
    assert world.node.partitions.online() and not cleaner_of(world).uncleanable


test_a_topic_that_is_deleted_meanwhile_is_let_go = on_node(
    _deleted, log_cleaner_backoff_ms="10000000", log_cleaner_io_max_bytes_per_second="100"
)


async def _waits(world: SimulatedWorld, peer: Peer) -> None:
    policy = {**COMPACT, "cleanup.policy": "compact,delete", "retention.bytes": "100"}
    await peer.create_topic("c", config=policy)
    put(peer, "c", 40)
    assert world.node is not None
    await world.node.housekeeping.flush()
    cleaning = asyncio.ensure_future(cleaner_of(world).clean_worst())
    await asyncio.sleep(5)
    log = log_of(world, "c")
    assert log.is_cleaning
    assert await world.node.housekeeping.apply_retention() == 0
    assert await cleaning
    assert await world.node.housekeeping.apply_retention() > 0
    assert log.log_start_offset > 0


test_retention_waits_for_the_cleaner = on_node(
    _waits, log_cleaner_backoff_ms="10000000", log_cleaner_io_max_bytes_per_second="100"
)


async def _stops(world: SimulatedWorld, peer: Peer) -> None:
    """At any moment of a cleaning."""
    await peer.create_topic("c", config=COMPACT)
    put(peer, "c", 60)
    await asyncio.sleep(0.7)
    for number in range(60):
        await asyncio.sleep(0.05 * (number % 7))
        await world.stop()
        names = world.disk.list_dir("/data/c-0")
        assert not [name for name in names if name.endswith(".swap")], number
        assert await world.start()
        log = log_of(world, "c")
        assert dict(records(log)[-3:]) == {log.log_end_offset - n: b"%d" % (log.log_end_offset - n) for n in (3, 2, 1)}
        put(Peer(world.node), "c", 6, first=log.log_end_offset)  # type: ignore[arg-type]


test_a_node_that_stops_while_it_cleans = on_node(_stops, log_cleaner_backoff_ms="200")
