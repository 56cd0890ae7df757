"""No room at any one write of a log: what failed has not happened, the next try works, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from tests.unit.log.helpers import TINY, append, batch_of, open_log, read_batches, sim_disk
from tidelog.kernel.errors import DiskFullError
from tidelog.log.config import LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.batch import read_header
from tidelog.sim.disk import SimDisk

T = TypeVar("T")


def fill_operations(disk: SimDisk, number: int, count: int = 1) -> None:
    """The operation with this number from now on, and those behind it, find no room."""
    disk.faults.full_at = range(disk.operations + number, disk.operations + number + count)


def stubborn(attempt: Callable[[], T], refused: list[str]) -> T:
    while True:
        try:
            return attempt()
        except DiskFullError as error:
            refused.append(str(error))


def script(log: PartitionLog, refused: list[str]) -> None:
    """Two rolls, with a producer whose snapshots are taken, a new epoch, a flush and retention."""
    for number in range(12):
        batch = batch_of(value=b"v" * 60, producer_id=7, sequence=number)
        stubborn(lambda batch=batch, number=number: append(log, batch, leader_epoch=number // 5), refused)
        if number == 8:
            log.flush()
    log.delete_old_segments(0, log.log_end_offset, one_by_one=True)


def offsets(log: PartitionLog) -> list[int]:
    return [read_header(batch).base_offset for batch in read_batches(log)]


def test_no_room_at_any_operation_leaves_a_log_that_goes_on() -> None:
    config = replace(TINY, retention_bytes=400)
    disk = sim_disk()
    log = open_log(disk, config)
    before = disk.operations
    script(log, [])
    expected, epochs = offsets(log), log.leader_epochs.entries
    assert expected[0] > 0 and expected[-1] == 11
    refusals = 0
    for number in range(1, disk.operations - before + 1):
        for count in (1, 3):
            disk = sim_disk(number)
            log = open_log(disk, config)
            fill_operations(disk, number, count)
            refused: list[str] = []
            script(log, refused)
            refusals += len(refused)
            assert log.log_end_offset == 12
            disk.faults.full_at = range(0)
            log.delete_old_segments(0, log.log_end_offset)
            assert offsets(log) == expected, f"no room at operation {number}"
            log.flush()
            again = open_log(disk.crash(keep_page_cache=False), config, recovery_point=log.recovery_point)
            assert offsets(again) == expected, f"no room at operation {number}, then a power cut"
            assert again.leader_epochs.entries == epochs
            state = again.producers.get(7)
            assert state is not None and state.batches[-1].last_sequence == 11
    assert refusals > 20


def test_an_epoch_that_found_no_room_is_written_by_a_later_flush() -> None:
    disk = sim_disk()
    log = open_log(disk)
    append(log)
    log.flush()
    fill_operations(disk, 1, 100)
    log.leader_epochs.assign(5, log.log_end_offset)
    assert not log.is_flushed
    log.flush()
    assert not log.is_flushed, "the file does not hold the epoch yet"
    disk.faults.full_at = range(0)
    log.flush()
    assert log.is_flushed
    assert b"5 1" in (disk.crash(keep_page_cache=False).read_file(log.leader_epochs.path) or b"")


def test_retention_without_room_for_the_next_segment_keeps_the_active_one() -> None:
    disk = sim_disk()
    log = open_log(disk, LogConfig(segment_bytes=len(batch_of()), retention_ms=0))
    for _ in range(3):
        append(log)
    fill_operations(disk, 1, 100)
    assert [gone.base_offset for gone in log.delete_old_segments(10_000, 3, one_by_one=True)] == [0, 1]
    assert offsets(log) == [2]
    disk.faults.full_at = range(0)
    assert [gone.base_offset for gone in log.delete_old_segments(10_000, 3)] == [2]
    assert append(log).base_offset == 3


def test_one_by_one_no_segment_comes_back_before_one_that_stays_away() -> None:
    for seed in range(60):
        disk = sim_disk(seed)
        log = open_log(disk, LogConfig(segment_bytes=len(batch_of()), retention_bytes=1))
        for _ in range(6):
            append(log)
        log.flush()
        disk.faults.crash_at = disk.operations + 1 + seed % 20
        try:
            log.delete_old_segments(0, 6, one_by_one=True)
        except BaseException as error:
            assert type(error).__name__ == "SimulatedCrash"
        # The recovery points on disk are those of long ago.
        again = open_log(disk.crash(keep_page_cache=False), LogConfig(segment_bytes=len(batch_of())), recovery_point=0)
        found = offsets(again)
        assert found == list(range(found[0], 6)), found
