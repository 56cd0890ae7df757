"""What is durable, and when the log says so: rounds that overlap, rolls and truncations in the middle of one."""

from __future__ import annotations

from tests.unit.log.helpers import DIRECTORY, append, batch_of, open_log, read_batches, sim_disk
from tidelog.log.directory import LogDirectory
from tidelog.log.names import segment_name
from tidelog.log.partition_log import PartitionLog
from tidelog.log.unsynced import FlushRound
from tidelog.protocol.batch import read_header
from tidelog.sim.disk import SimDisk

TOPIC_ID = bytes(range(16))


def sync(disk: SimDisk, round: FlushRound) -> None:
    disk.sync_now(round.files, round.directories)


def names(round: FlushRound) -> list[str]:
    return [file.path.rpartition("/")[2] for file in round.files]


def opened(disk: SimDisk) -> PartitionLog:
    log = open_log(disk)
    log.flush()
    return log


def test_a_new_partition_is_durable_with_its_first_flush() -> None:
    disk = sim_disk()
    log = PartitionLog.open(disk, DIRECTORY, "t", 0, open_log(disk).config, now_ms=0, clean=False, topic_id=TOPIC_ID)
    append(log)
    round = log.flush_begin()
    assert set(names(round)) >= {"partition.metadata", "00000000000000000000.log", "leader-epoch-checkpoint"}
    assert set(round.directories) == {DIRECTORY, "data"}


def test_the_recovery_point_moves_only_when_the_round_is_done() -> None:
    disk = sim_disk()
    log = opened(disk)
    append(log)
    round = log.flush_begin()
    assert log.recovery_point == 0
    append(log)
    sync(disk, round)
    assert log.flush_done(round) == 1
    assert not log.is_flushed


def test_an_idle_log_has_nothing_to_sync() -> None:
    disk = sim_disk()
    log = opened(disk)
    append(log)
    log.flush()
    round = log.flush_begin()
    assert (round.offset, round.files, round.directories) == (1, (), ())
    before = disk.sync_count
    log.flush()
    assert disk.sync_count == before


def test_a_round_in_steady_state_syncs_one_file() -> None:
    disk = sim_disk()
    log = opened(disk)
    append(log)
    log.flush()
    append(log)
    assert names(log.flush_begin()) == ["00000000000000000000.log"]
    assert log.flush_begin().directories == ()


def test_a_roll_in_the_middle_of_a_round_belongs_to_the_next() -> None:
    """The second batch is in the file that the round syncs, but came after the round had begun."""
    disk = sim_disk()
    log = opened(disk)
    append(log)
    round = log.flush_begin()
    append(log)
    log.roll(0)
    append(log)
    sync(disk, round)
    log.flush_done(round)
    following = log.flush_begin()
    assert {segment_name(0, ".log"), segment_name(0, ".index"), segment_name(2, ".log")} <= set(names(following))
    assert DIRECTORY in following.directories
    sync(disk, following)
    assert log.flush_done(following) == 3
    assert log.is_flushed


def test_a_late_round_does_not_take_away_what_a_newer_one_must_do() -> None:
    disk = sim_disk()
    log = opened(disk)
    append(log)
    log.roll(0)
    first, second = log.flush_begin(), log.flush_begin()
    log.flush_done(first)
    append(log)
    log.roll(0)
    log.flush_done(second)
    following = log.flush_begin()
    assert {segment_name(1, ".log"), segment_name(1, ".index")} <= set(names(following))
    assert DIRECTORY in following.directories


def test_the_first_of_two_rounds_takes_nothing_from_the_second() -> None:
    disk = sim_disk()
    log = opened(disk)
    append(log)
    log.roll(0)
    append(log)
    first = log.flush_begin()
    second = log.flush_begin()
    assert names(second) == names(first)
    assert second.directories == first.directories


def test_a_name_made_during_a_round_is_synced_by_the_next() -> None:
    disk = sim_disk()
    log = opened(disk)
    append(log)
    log.roll(0)
    append(log)
    round = log.flush_begin()
    log.roll(0)
    sync(disk, round)
    log.flush_done(round)
    assert DIRECTORY in log.flush_begin().directories


def test_a_round_from_before_a_truncation_vouches_for_nothing() -> None:
    disk = sim_disk()
    log = opened(disk)
    for _ in range(3):
        append(log)
    round = log.flush_begin()
    sync(disk, round)
    log.truncate_to(1)
    append(log, leader_epoch=1)
    append(log, leader_epoch=1)
    assert log.flush_done(round) == 0
    assert log.flush() == 3


def test_an_expired_segment_is_synced_no_more() -> None:
    disk = sim_disk()
    log = opened(disk)
    append(log, batch_of(timestamp=1))
    log.roll(0)
    append(log, batch_of(timestamp=1))
    assert "00000000000000000000.log" in names(log.flush_begin())
    log.maybe_increment_log_start(1)
    log.delete_old_segments(10, 1)
    assert "00000000000000000000.log" not in names(log.flush_begin())


def test_a_reader_at_the_tail_sees_the_batches_that_replaced_truncated_ones() -> None:
    disk = sim_disk()
    log = opened(disk)
    for _ in range(4):
        append(log, batch_of(1))
    log.truncate_to(1)
    append(log, batch_of(3, value=b"longer than before"), leader_epoch=1)
    for offset in (1, 2, 3):
        assert read_header(log.read(offset, 1000, end_offset=4).data).base_offset == 1


def test_dropped_segments_stay_dropped_through_a_power_cut() -> None:
    for seed in range(20):
        disk = sim_disk(seed)
        log = opened(disk)
        for _ in range(3):
            append(log)
            log.roll(0)
        log.flush()
        log.truncate_to(1)
        disk = disk.crash(keep_page_cache=False)
        assert [segment.base_offset for segment in open_log(disk).segments] in ([0], [0, 1])


def test_a_truncation_lowers_the_recovery_point_on_disk_to_the_start_of_a_straddled_batch() -> None:
    disk = sim_disk()
    directory = LogDirectory.open(disk, "data")
    log = directory.create_partition("t", 0, open_log(disk).config, topic_id=TOPIC_ID, now_ms=0)
    append(log, batch_of(2))
    append(log, batch_of(4))
    log.flush()
    directory.checkpoint()
    directory.truncate_to(log, 4)
    assert log.log_end_offset == 2
    assert disk.read_file("data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 2\n"


def test_an_unclean_start_makes_durable_what_it_found() -> None:
    disk = sim_disk()
    directory = LogDirectory.open(disk, "data")
    config = open_log(disk).config
    log = directory.create_partition("t", 0, config, topic_id=TOPIC_ID, now_ms=0)
    append(log)
    disk = disk.crash(keep_page_cache=True)
    directory = LogDirectory.open(disk, "data")
    directory.load(lambda _: config, 0)
    assert directory.partitions["t", 0].recovery_point == 1
    disk = disk.crash(keep_page_cache=False)
    directory = LogDirectory.open(disk, "data")
    directory.load(lambda _: config, 0)
    assert len(read_batches(directory.partitions["t", 0])) == 1
