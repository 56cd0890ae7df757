"""Retention: which segments go by time, by size and by the start of the log, and when their files do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.log.helpers import DIRECTORY, append, batch_of, open_log, read_batches, sim_disk
from tidelog.log.config import LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.log.retention import Reason, Removal
from tidelog.protocol.batch import read_header
from tidelog.sim.disk import SimDisk

SIZE = len(batch_of())
FOREVER: dict[str, Any] = {"retention_ms": -1, "retention_bytes": -1}


def log_with(*timestamps: int, disk: SimDisk | None = None, **config: Any) -> PartitionLog:
    """One segment a batch; the last one is the active segment."""
    log = open_log(disk or sim_disk(), LogConfig(segment_bytes=SIZE, **{**FOREVER, **config}))
    for timestamp in timestamps:
        append(log, batch_of(timestamp=timestamp))
    assert [segment.size for segment in log.segments] == [SIZE] * len(timestamps)
    return log


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def removed(log: PartitionLog, now_ms: int = 0, high_watermark: int | None = None) -> list[tuple[int, Reason]]:
    high_watermark = log.log_end_offset if high_watermark is None else high_watermark
    return [(gone.base_offset, gone.reason) for gone in log.delete_old_segments(now_ms, high_watermark)]


class TestByTime:
    def test_what_is_older_than_retention_ms_goes(self) -> None:
        log = log_with(1000, 2000, 3000, 4000, retention_ms=500)
        assert removed(log, 2501) == [(0, Reason.TIME), (1, Reason.TIME)]
        assert (bases(log), log.log_start_offset) == ([2, 3], 2)

    def test_exactly_as_old_may_stay(self) -> None:
        log = log_with(1000, 2000, retention_ms=500)
        assert removed(log, 1500) == []
        assert removed(log, 1501) == [(0, Reason.TIME)]

    def test_minus_1_keeps_everything(self) -> None:
        assert removed(log_with(1000, 2000, retention_ms=-1), 2**60) == []

    def test_0_keeps_nothing_that_has_passed(self) -> None:
        assert len(removed(log_with(1000, 2000, retention_ms=0), 2001)) == 2

    def test_a_newer_segment_in_front_keeps_the_older_behind_it(self) -> None:
        assert removed(log_with(9000, 1000, 1000, retention_ms=500), 5000) == []

    def test_the_newest_record_of_a_segment_counts(self) -> None:
        log = open_log(sim_disk(), LogConfig(segment_bytes=3 * SIZE, retention_ms=500))
        for timestamp in (1000, 9000, 1000, 1000):
            append(log, batch_of(timestamp=timestamp))
        assert bases(log) == [0, 3]
        assert removed(log, 9500) == []
        assert removed(log, 9501) == [(0, Reason.TIME), (3, Reason.TIME)]

    @pytest.mark.parametrize("clean", [True, False])
    def test_the_newest_record_counts_after_a_restart(self, clean: bool) -> None:
        disk = sim_disk()
        log = log_with(1000, 2000, 3000, disk=disk, retention_ms=500)
        config = log.config
        log.close(0)
        log = open_log(disk, config, clean=clean)
        assert removed(log, 2501) == [(0, Reason.TIME), (1, Reason.TIME)]

    def test_without_timestamps_the_time_of_the_file_counts(self) -> None:
        now = 10_000
        disk = sim_disk()
        disk._wall_ms = lambda: now
        log = log_with(-1, -1, disk=disk, retention_ms=500)
        assert removed(log, 10_500) == []
        assert len(removed(log, 10_501)) == 2

    def test_when_all_have_expired_the_active_segment_is_rolled_first(self) -> None:
        log = log_with(1000, 2000, retention_ms=500)
        assert removed(log, 10_000) == [(0, Reason.TIME), (1, Reason.TIME)]
        assert bases(log) == [2]
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (2, 2, 0)
        assert append(log, batch_of(timestamp=10_000)).base_offset == 2

    def test_an_empty_active_segment_is_left_alone(self) -> None:
        log = log_with(1000, retention_ms=500)
        assert len(removed(log, 10_000)) == 1
        assert removed(log, 10**9) == []
        assert bases(log) == [1]


class TestBySize:
    @pytest.mark.parametrize(
        ("keep", "left"),
        [
            (4 * SIZE, [0, 1, 2, 3]),
            (4 * SIZE - 1, [0, 1, 2, 3]),  # without the first one it would be too small
            (3 * SIZE + 1, [0, 1, 2, 3]),
            (3 * SIZE, [1, 2, 3]),
            (SIZE + 1, [2, 3]),
            (SIZE, [3]),
            (-1, [0, 1, 2, 3]),
        ],
    )
    def test_the_oldest_go_while_enough_is_left(self, keep: int, left: list[int]) -> None:
        log = log_with(1, 2, 3, 4, retention_bytes=keep)
        assert {reason for _, reason in removed(log)} <= {Reason.SIZE}
        assert bases(log) == left

    def test_what_goes_is_told_with_its_size(self) -> None:
        log = log_with(1, 2, 3, retention_bytes=2 * SIZE)
        assert log.delete_old_segments(0, 3) == [Removal(0, SIZE, Reason.SIZE)]

    def test_what_is_marked_counts_no_more_for_the_segments_behind_it(self) -> None:
        log = open_log(sim_disk(), LogConfig(segment_bytes=1000, retention_ms=-1, retention_bytes=2000))
        for value in (900, 100, 900, 900, 900):
            append(log, batch_of(value=bytes(value)))
            if log.log_end_offset < 5:
                log.roll(0)
        sizes = [segment.size for segment in log.segments]
        assert sum(sizes[2:]) >= 2000 > sum(sizes[3:])
        assert removed(log) == [(0, Reason.SIZE), (1, Reason.SIZE)]


class TestByLogStart:
    def test_segments_wholly_before_the_start_go_whatever_the_policy(self) -> None:
        log = log_with(1, 2, 3, cleanup_policy=frozenset({"compact"}))
        log.maybe_increment_log_start(2)
        assert removed(log) == [(0, Reason.LOG_START), (1, Reason.LOG_START)]
        assert (bases(log), log.log_start_offset) == ([2], 2)

    def test_a_segment_that_holds_the_start_stays(self) -> None:
        log = open_log(sim_disk(), LogConfig(segment_bytes=1, **FOREVER))
        append(log, batch_of(5))
        append(log, batch_of(5))
        log.maybe_increment_log_start(4)
        assert removed(log) == []
        assert (bases(log), log.log_start_offset) == ([0, 5], 4)

    def test_the_active_segment_stays_even_when_all_of_it_was_deleted(self) -> None:
        log = log_with(1, 2)
        log.maybe_increment_log_start(2)
        assert removed(log) == [(0, Reason.LOG_START)]
        assert bases(log) == [1]


def test_compaction_alone_deletes_nothing_by_time_or_size() -> None:
    log = log_with(1, 2, retention_ms=1, retention_bytes=1, cleanup_policy=frozenset({"compact"}))
    assert removed(log, 10**9) == []


def test_compaction_with_deletion_does() -> None:
    log = log_with(1, 2, retention_ms=1, cleanup_policy=frozenset({"compact", "delete"}))
    assert len(removed(log, 10**9)) == 2


@pytest.mark.parametrize(("high_watermark", "left"), [(0, [0, 1, 2]), (1, [1, 2]), (2, [2]), (3, [3])])
def test_nothing_behind_the_high_watermark_goes(high_watermark: int, left: list[int]) -> None:
    log = log_with(1, 2, 3, retention_ms=1)
    removed(log, 10**9, high_watermark)
    assert bases(log) == left


class TestFiles:
    def names(self, disk: SimDisk, suffix: str) -> list[str]:
        return [name for name in disk.list_dir(DIRECTORY) if name.endswith(suffix)]

    def test_they_are_renamed_now_and_removed_after_the_delay(self) -> None:
        disk = sim_disk()
        log = log_with(1000, 2000, 9000, disk=disk, retention_ms=500, file_delete_delay_ms=60)
        removed(log, 5000)
        marked = self.names(disk, ".deleted")
        assert [name for name in marked if ".log" in name] == [f"{0:020d}.log.deleted", f"{1:020d}.log.deleted"]
        assert f"{1:020d}.snapshot.deleted" in marked
        assert self.names(disk, ".log") == [f"{2:020d}.log"]
        assert log.next_removal_ms == 5060
        assert log.remove_due_files(5059) == 0
        assert self.names(disk, ".deleted") == marked
        assert log.remove_due_files(5060) == len(marked)
        assert self.names(disk, ".deleted") == []
        assert log.remove_due_files(10**12) == 0

    def test_a_start_drops_what_was_marked(self) -> None:
        disk = sim_disk()
        log = log_with(1000, 2000, 9000, disk=disk, retention_ms=500)
        removed(log, 5000)
        log.close(5000)
        log = open_log(disk, log.config, clean=True)
        assert self.names(disk, ".deleted") == []
        assert (log.log_start_offset, log.log_end_offset) == (2, 3)
        assert [read_header(batch).base_offset for batch in read_batches(log)] == [2]
