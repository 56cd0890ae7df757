"""Appending and reading: when a segment is rolled, what is set in a batch, and how much a read gives."""

from __future__ import annotations

import pytest

from tests.unit.log.helpers import DIRECTORY, append, batch_of, open_log, read_batches, sim_disk
from tidelog.kernel.errors import DiskFullError
from tidelog.log.config import LogConfig
from tidelog.log.errors import LogError
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.batch import assign_offsets, crc_is_valid, read_header, set_append_time
from tidelog.protocol.errors import ErrorCode
from tidelog.sim.disk import DiskFaults

SIZE = len(batch_of())


def new_log(**config: int) -> PartitionLog:
    return open_log(sim_disk(), LogConfig(**{"segment_bytes": 1_000_000, **config}))  # type: ignore[arg-type]


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


class TestRoll:
    def test_a_segment_may_be_exactly_full_and_no_fuller(self) -> None:
        log = new_log(segment_bytes=2 * SIZE)
        for _ in range(5):
            append(log)
        assert bases(log) == [0, 2, 4]
        log = new_log(segment_bytes=2 * SIZE - 1)
        for _ in range(3):
            append(log)
        assert bases(log) == [0, 1, 2]

    def test_a_batch_larger_than_a_segment_has_one_to_itself(self) -> None:
        log = new_log(segment_bytes=100)
        append(log, batch_of(value=bytes(500)))
        append(log, batch_of(value=bytes(500)))
        assert bases(log) == [0, 1]

    def test_the_new_base_is_the_end_of_the_log(self) -> None:
        log = new_log(segment_bytes=100)
        append(log, batch_of(5))
        append(log, batch_of(2))
        assert bases(log) == [0, 5]
        assert f"{5:020d}.log" in sim_names(log)

    def test_segment_ms_counts_from_the_first_batch_to_the_incoming_one(self) -> None:
        log = new_log(segment_ms=1000)
        append(log, batch_of(timestamp=5000), now_ms=99_999_999)
        append(log, batch_of(timestamp=6000))
        assert bases(log) == [0]
        append(log, batch_of(timestamp=6001))
        assert bases(log) == [0, 2]
        append(log, batch_of(timestamp=7001))
        assert bases(log) == [0, 2]

    def test_segment_ms_counts_from_the_first_batch_also_after_a_restart(self) -> None:
        disk = sim_disk()
        config = LogConfig(segment_ms=1000)
        log = open_log(disk, config)
        append(log, batch_of(timestamp=5000))
        append(log, batch_of(timestamp=5900))
        log.close(0)
        log = open_log(disk, config, clean=True)
        append(log, batch_of(timestamp=6001))
        assert bases(log) == [0, 2]

    def test_segment_ms_counts_from_its_making_when_no_record_has_a_time(self) -> None:
        log = new_log(segment_ms=1000)
        append(log, batch_of(timestamp=-1), now_ms=500)
        append(log, batch_of(timestamp=-1), now_ms=1000)
        assert bases(log) == [0]
        append(log, batch_of(timestamp=-1), now_ms=1001)
        assert bases(log) == [0, 2]

    def test_an_empty_segment_is_not_rolled_however_old(self) -> None:
        log = new_log(segment_ms=1000)
        assert not log.maybe_roll(10**12)
        append(log, batch_of(timestamp=10**12), now_ms=10**12)
        assert bases(log) == [0]

    def test_time_alone_rolls_when_asked(self) -> None:
        log = new_log(segment_ms=1000)
        append(log, batch_of(timestamp=5000))
        assert not log.maybe_roll(6000)
        assert log.maybe_roll(6001)
        assert bases(log) == [0, 1]

    def test_a_config_that_changes_counts_from_the_next_batch_on(self) -> None:
        log = new_log(segment_ms=1_000_000)
        append(log, batch_of(timestamp=5000))
        append(log, batch_of(timestamp=6001))
        log.config = LogConfig(segment_ms=1000)
        append(log, batch_of(timestamp=6001))
        assert bases(log) == [0, 2]
        log.config = LogConfig(segment_ms=1_000_000)
        append(log, batch_of(timestamp=9000))
        assert bases(log) == [0, 2]

    def test_jitter_rolls_earlier_and_always_at_the_same_time(self) -> None:
        def rolled_at() -> int:
            log = new_log(segment_ms=1000, segment_jitter_ms=900)
            append(log, batch_of(timestamp=5000))
            return next(now for now in range(5000, 6002) if log.maybe_roll(now))

        assert rolled_at() == rolled_at()
        assert 5100 < rolled_at() <= 6001

    def test_a_full_offset_index_rolls(self) -> None:
        log = new_log(index_interval_bytes=0, segment_index_bytes=5 * 8)
        for _ in range(7):
            append(log, batch_of(timestamp=-1))
        assert bases(log) == [0, 6]  # the first batch has no entry, the five behind it fill the index

    def test_the_time_index_keeps_one_slot_for_the_last_entry(self) -> None:
        log = new_log(index_interval_bytes=0, segment_index_bytes=5 * 12)
        for number in range(7):
            append(log, batch_of(timestamp=number))
        assert bases(log) == [0, 5]
        log.close(0)

    def test_a_full_index_is_seen_after_a_restart(self) -> None:
        disk = sim_disk()
        config = LogConfig(index_interval_bytes=0, segment_index_bytes=5 * 8)
        log = open_log(disk, config)
        for _ in range(6):
            append(log, batch_of(timestamp=-1))
        log.close(0)
        log = open_log(disk, config, clean=True)
        append(log, batch_of(timestamp=-1))
        assert bases(log) == [0, 6]

    def test_offsets_farther_from_the_base_than_an_int32_roll(self) -> None:
        log = new_log()
        append(log)
        for offset in (2**31 - 1, 2**31):
            batch = batch_of()
            assign_offsets(batch, offset, 0)
            log.append_as_follower(batch, now_ms=0)
        assert bases(log) == [0, 2**31]

    def test_a_follower_rolls_between_the_batches_of_one_run(self) -> None:
        leader, follower = new_log(), new_log(segment_bytes=2 * SIZE)
        for _ in range(5):
            append(leader)
        follower.append_as_follower(leader.read(0, 10_000, end_offset=5).data, now_ms=0)
        assert bases(follower) == [0, 2, 4]
        assert read_batches(follower) == read_batches(leader)


def sim_names(log: PartitionLog) -> list[str]:
    return log._disk.list_dir(DIRECTORY)


class TestAppend:
    def test_offset_and_epoch_are_set_and_everything_else_is_as_it_came(self) -> None:
        log = new_log()
        append(log, batch_of(3))
        batch = batch_of(2)
        before = bytes(batch)
        result = append(log, batch, leader_epoch=6)
        assert (result.base_offset, result.last_offset, result.duplicate) == (3, 4, False)
        stored = read_batches(log)[1]
        header = read_header(stored)
        assert (header.base_offset, header.leader_epoch) == (3, 6)
        assert stored[16:] == before[16:]
        assert stored[8:12] == before[8:12]
        assert crc_is_valid(stored, header)

    def test_the_time_that_the_caller_set_is_the_log_s_own(self) -> None:
        log = new_log()
        batch = batch_of(3, timestamp=5)
        header = set_append_time(batch, read_header(batch), 777)
        assert log.append(batch, header, leader_epoch=0, now_ms=777).timestamp == 777
        stored = read_header(read_batches(log)[0])
        assert (stored.is_append_time, stored.max_timestamp) == (True, 777)
        assert crc_is_valid(read_batches(log)[0], stored)
        found = log.offset_for_timestamp(777, end_offset=3)
        assert found is not None
        assert found[:2] == (777, 0)
        assert log.offset_for_timestamp(778, end_offset=3) is None

    def test_a_full_disk_leaves_the_log_as_it_was(self) -> None:
        disk = sim_disk()
        log = open_log(disk, LogConfig())
        append(log)
        used = disk._measure()
        disk.faults = DiskFaults(capacity_bytes=used + SIZE - 1)
        with pytest.raises(DiskFullError):
            append(log)
        assert (log.log_end_offset, log.size_bytes) == (1, SIZE)
        assert disk.read_file(f"{DIRECTORY}/{0:020d}.log") == read_batches(log)[0]
        disk.faults = DiskFaults()
        assert append(log).base_offset == 1
        assert [read_header(batch).base_offset for batch in read_batches(log)] == [0, 1]

    def test_a_follower_refuses_a_damaged_run_whole(self) -> None:
        leader, follower = new_log(), new_log()
        for _ in range(3):
            append(leader)
        run = bytearray(leader.read(0, 10_000, end_offset=3).data)
        run[-1] ^= 1
        with pytest.raises(LogError) as refused:
            follower.append_as_follower(run, now_ms=0)
        assert refused.value.error_code is ErrorCode.CORRUPT_MESSAGE
        assert (follower.log_end_offset, follower.size_bytes) == (0, 0)

    def test_a_follower_refuses_offsets_that_it_has(self) -> None:
        leader, follower = new_log(), new_log()
        append(leader)
        run = leader.read(0, 10_000, end_offset=1).data
        follower.append_as_follower(run, now_ms=0)
        with pytest.raises(LogError) as refused:
            follower.append_as_follower(run, now_ms=0)
        assert refused.value.error_code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert follower.log_end_offset == 1

    def test_a_follower_given_nothing_appends_nothing(self) -> None:
        assert new_log().append_as_follower(b"", now_ms=0) is None


class TestRead:
    @pytest.fixture(params=["active", "rolled", "reopened"])
    def log(self, request: pytest.FixtureRequest) -> PartitionLog:
        """Six batches of one record each, then an empty segment or none."""
        disk = sim_disk()
        config = LogConfig(index_interval_bytes=SIZE)
        log = open_log(disk, config)
        for _ in range(6):
            append(log)
        if request.param == "rolled":
            log.roll(0)
        if request.param == "reopened":
            log.close(0)
            log = open_log(disk, config, clean=True)
        return log

    def sizes(self, log: PartitionLog, offset: int, max_bytes: int, end: int = 6, one: bool = True) -> int:
        return len(log.read(offset, max_bytes, end_offset=end, min_one_batch=one).data)

    def test_starts_with_the_batch_that_holds_the_offset(self, log: PartitionLog) -> None:
        for offset in range(6):
            read = log.read(offset, 10_000, end_offset=6)
            assert read_header(read.data).base_offset == offset
            assert (read.segment_base_offset, read.position) == (0, offset * SIZE)

    def test_the_middle_of_a_batch_gives_the_whole_batch(self) -> None:
        log = new_log()
        append(log, batch_of(3))
        append(log, batch_of(4))
        for offset in range(3, 7):
            assert read_header(log.read(offset, 10_000, end_offset=7).data).base_offset == 3

    def test_max_bytes_may_cut_the_last_batch(self, log: PartitionLog) -> None:
        assert self.sizes(log, 1, 2 * SIZE) == 2 * SIZE
        # Not in bytes that nobody has checked yet: a part of a batch has no CRC.
        cut = 10 if log.segments[0].trusted_from == 0 else 0
        assert self.sizes(log, 1, 2 * SIZE + 10) == 2 * SIZE + cut
        assert self.sizes(log, 1, 10_000) == 5 * SIZE

    def test_a_first_batch_that_is_too_large_is_given_whole_or_not_at_all(self, log: PartitionLog) -> None:
        for max_bytes in (0, 1, SIZE - 1):
            assert self.sizes(log, 1, max_bytes) == SIZE
            assert self.sizes(log, 1, max_bytes, one=False) == 0
        assert self.sizes(log, 1, SIZE, one=False) == SIZE

    def test_nothing_behind_the_end_offset(self, log: PartitionLog) -> None:
        assert self.sizes(log, 1, 10_000, end=3) == 2 * SIZE
        assert self.sizes(log, 3, 10_000, end=3) == 0
        assert self.sizes(log, 5, 10_000, end=3) == 0
        assert self.sizes(log, 0, 10_000, end=0) == 0

    def test_the_end_of_the_log_is_empty_and_beyond_is_out_of_range(self, log: PartitionLog) -> None:
        assert self.sizes(log, 6, 10_000) == 0
        for offset in (-1, 7):
            with pytest.raises(LogError) as refused:
                log.read(offset, 10_000, end_offset=6)
            assert refused.value.error_code is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_what_lies_before_the_log_start_is_out_of_range(self, log: PartitionLog) -> None:
        log.maybe_increment_log_start(2)
        with pytest.raises(LogError) as refused:
            log.read(1, 10_000, end_offset=6)
        assert refused.value.error_code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert self.sizes(log, 2, 10_000) == 4 * SIZE

    def test_one_read_does_not_cross_into_the_next_segment(self) -> None:
        log = new_log(segment_bytes=2 * SIZE)
        for _ in range(5):
            append(log)
        assert self.sizes(log, 0, 10_000, end=5) == 2 * SIZE
        assert self.sizes(log, 3, 10_000, end=5) == SIZE
        assert self.sizes(log, 2, 10_000, end=3) == SIZE

    def test_an_offset_in_a_gap_gives_the_next_batch(self) -> None:
        log = new_log()
        for offset in (0, 10, 20):
            batch = batch_of()
            assign_offsets(batch, offset, 0)
            log.append_as_follower(batch, now_ms=0)
            if offset == 10:
                log.roll(0)
        for offset, base in ((0, 0), (1, 10), (10, 10), (11, 20), (20, 20)):
            assert read_header(log.read(offset, 10_000, end_offset=21).data).base_offset == base
