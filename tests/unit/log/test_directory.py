"""A data directory: its lock and identity, the clean marker, its partitions coming and going, its checkpoints."""

from __future__ import annotations

import pytest

from tests.unit.log.helpers import batch_of, sim_disk
from tidelog.kernel.errors import DirectoryLockedError
from tidelog.log.config import LogConfig
from tidelog.log.directory import LogDirectory
from tidelog.log.errors import DirectoryMismatchError, LogError
from tidelog.log.meta_properties import MetaProperties
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.batch import read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.sim.disk import DiskFaults, SimDisk

META = MetaProperties("cluster", 1, bytes(range(16)))
ID = bytes(range(1, 17))
OTHER_ID = bytes(range(2, 18))
CONFIG = LogConfig(segment_bytes=600, file_delete_delay_ms=1000, retention_ms=-1)
HEX = "0123456789abcdef" * 2
MARKER = "data/.kafka_cleanshutdown"
RECOVERY = "data/recovery-point-offset-checkpoint"
STARTS = "data/log-start-offset-checkpoint"
WATERMARKS = "data/replication-offset-checkpoint"


def opened(disk: SimDisk) -> LogDirectory:
    directory = LogDirectory.open(disk, "data")
    directory.load(lambda _: CONFIG, 0)
    return directory


def create(directory: LogDirectory, topic: str = "t", partition: int = 0, topic_id: bytes = ID) -> PartitionLog:
    return directory.create_partition(topic, partition, CONFIG, topic_id=topic_id, now_ms=0)


def write(log: PartitionLog, count: int = 1) -> None:
    for _ in range(count):
        batch = batch_of()
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=0)


def close(directory: LogDirectory, broker_epoch: int = 11, **watermarks: int) -> None:
    directory.close(0, high_watermarks={(name, 0): at for name, at in watermarks.items()}, broker_epoch=broker_epoch)


class TestLock:
    def test_a_second_node_is_turned_away_until_the_first_lets_go(self) -> None:
        disk = sim_disk()
        first = LogDirectory.open(disk, "data")
        with pytest.raises(DirectoryLockedError):
            LogDirectory.open(disk, "data")
        close(first)
        second = LogDirectory.open(disk, "data")
        second.abandon()
        LogDirectory.open(disk, "data")

    def test_a_directory_that_cannot_be_read_is_not_kept_locked(self) -> None:
        disk = sim_disk()
        disk.replace_file("data/meta.properties", b"version=7\n")
        for _ in range(2):
            with pytest.raises(DirectoryMismatchError, match="has version 7: only 1 can be read"):
                LogDirectory.open(disk, "data")

    def test_a_new_directory_is_made_durably_with_those_above_it(self) -> None:
        disk = sim_disk()
        LogDirectory.open(disk, "data/a/b").format(META)
        assert LogDirectory.open(disk.crash(keep_page_cache=False), "data/a/b").meta == META


class TestIdentity:
    def test_none_before_it_is_formatted(self) -> None:
        assert LogDirectory.open(sim_disk(), "data").meta is None

    def test_it_survives_a_power_cut(self) -> None:
        disk = sim_disk()
        LogDirectory.open(disk, "data").format(META)
        meta = LogDirectory.open(disk.crash(keep_page_cache=False), "data").meta
        assert meta == META
        with pytest.raises(DirectoryMismatchError, match=r"belongs to node 1, but node\.id is 2"):
            meta.check("data", cluster_id=None, node_id=2)


class TestCleanMarker:
    def test_a_clean_stop_writes_it_last(self) -> None:
        disk = sim_disk()
        directory = opened(disk)
        write(create(directory))
        disk.trace = []
        close(directory)
        assert disk.read_file(MARKER) == b'{"version":0,"brokerEpoch":11}'
        assert [step for step in disk.trace if "rename" in step][-1].endswith(MARKER)
        renamed = [number for number, step in enumerate(disk.trace) if step.startswith("rename")][-1]
        assert all(step.startswith("sync") for step in disk.trace[renamed + 1 :])

    def test_it_is_taken_with_the_first_log_and_its_removal_survives_a_power_cut(self) -> None:
        for seed in range(10):
            disk = sim_disk(seed)
            directory = opened(disk)
            create(directory, "t", 0)
            close(directory)
            directory = LogDirectory.open(disk, "data")
            assert (directory.was_clean, directory.previous_broker_epoch) == (True, 11)
            disk.trace = steps = []
            directory.load(lambda topic: LogConfig(), 0)
            assert not disk.exists(MARKER)
            assert MARKER in steps[0], "before anything else is written"
            assert steps[1] == "sync data"
            assert not LogDirectory.open(disk.crash(keep_page_cache=False), "data").was_clean

    def test_a_start_that_opens_no_log_leaves_it_to_the_next(self) -> None:
        disk = sim_disk()
        close(opened(disk))
        LogDirectory.open(disk, "data").abandon()
        assert LogDirectory.open(disk, "data").was_clean

    def test_without_it_the_stop_was_not_clean(self) -> None:
        disk = sim_disk()
        opened(disk).abandon()
        directory = LogDirectory.open(disk, "data")
        assert (directory.was_clean, directory.previous_broker_epoch) == (False, -1)

    @pytest.mark.parametrize("data", [b"", b"rubbish", b"[]", b"{}", b'{"brokerEpoch":null}', b"\xff"])
    def test_one_that_makes_no_sense_is_still_clean_with_an_unknown_epoch(self, data: bytes) -> None:
        disk = sim_disk()
        disk.replace_file(MARKER, data)
        directory = LogDirectory.open(disk, "data")
        assert (directory.was_clean, directory.previous_broker_epoch) == (True, -1)


class TestPartitions:
    def test_what_was_created_is_there_after_a_restart(self) -> None:
        disk = sim_disk()
        directory = opened(disk)
        write(create(directory, "a.b-c", 12), 9)
        close(directory)
        assert disk.read_file("data/a.b-c-12/partition.metadata") == b"version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA"
        log = opened(disk).partitions["a.b-c", 12]
        assert (log.log_end_offset, log.topic_id) == (9, ID)

    def test_creating_twice_is_creating_once(self) -> None:
        directory = opened(sim_disk())
        assert create(directory) is create(directory)

    def test_another_topic_of_the_same_name_is_refused(self) -> None:
        disk = sim_disk()
        directory = opened(disk)
        create(directory)
        close(directory)
        directory = LogDirectory.open(disk, "data")
        with pytest.raises(LogError) as refused:
            create(directory, topic_id=OTHER_ID)
        assert refused.value.error_code is ErrorCode.INCONSISTENT_TOPIC_ID

    def test_only_partitions_are_found(self) -> None:
        disk = sim_disk()
        names = ("t-0", "a-b-3", "__cluster_metadata-0", "lost+found", "x", f"t-1.{HEX}-delete", f"t-2.{HEX}-stray")
        for name in (*names, "-5", "t-0x"):
            disk.make_dirs(f"data/{name}")
        disk.replace_file("data/file-1", b"")
        assert sorted(LogDirectory.open(disk, "data").found()) == [("a-b", 3), ("t", 0)]

    def test_progress_is_told(self) -> None:
        disk = sim_disk()
        directory = opened(disk)
        for number in range(3):
            create(directory, partition=number)
        close(directory)
        seen: list[tuple[int, int]] = []
        LogDirectory.open(disk, "data").load(
            lambda _: CONFIG, 0, progress=lambda done, all_of: seen.append((done, all_of))
        )
        assert seen == [(1, 3), (2, 3), (3, 3)]


class TestDeletion:
    def test_the_directory_is_renamed_now_and_removed_after_the_delay(self) -> None:
        disk = sim_disk()
        directory = opened(disk)
        write(create(directory))
        directory.delete_partition("t", 0, unique_hex=HEX, now_ms=500)
        renamed = f"t-0.{HEX}-delete"
        assert directory.partitions == {}
        assert disk.is_dir(f"data/{renamed}")
        assert not disk.exists("data/t-0")
        assert directory.next_removal_ms == 1500
        assert directory.take_due(1499) == []
        assert directory.take_due(1500) == [f"data/{renamed}"]
        assert directory.take_due(1500) == []

    def test_a_long_name_is_cut_to_255_characters(self) -> None:
        disk = sim_disk()
        directory = opened(disk)
        topic = "x" * 249
        create(directory, topic)
        directory.delete_partition(topic, 0, unique_hex=HEX, now_ms=0)
        (renamed,) = (name for name in disk.list_dir("data") if name.startswith("x"))
        assert len(renamed) == 255
        assert renamed.endswith(f"x-0.{HEX}-delete")

    def test_leftovers_of_a_deletion_are_due_at_once_after_a_start(self) -> None:
        disk = sim_disk()
        directory = opened(disk)
        for number in range(3):
            create(directory, partition=number)
            directory.delete_partition("t", number, unique_hex=HEX, now_ms=0)
        directory.abandon()
        directory = opened(disk)
        assert directory.partitions == {}
        taken = directory.take_due(0, limit=2)
        assert len(taken) == 2
        taken += directory.take_due(0)
        assert sorted(taken) == [f"data/{name}" for name in disk.list_dir("data") if name.startswith("t-")]
        assert len(taken) == 3

    def test_a_new_partition_of_the_name_inherits_nothing(self) -> None:
        disk = sim_disk()
        directory = opened(disk)
        log = create(directory)
        write(log, 9)
        log.flush()
        log.maybe_increment_log_start(4)
        directory.checkpoint({("t", 0): 9})
        directory.delete_partition("t", 0, unique_hex=HEX, now_ms=0)
        log = create(directory, topic_id=OTHER_ID)
        assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)
        assert disk.read_file(RECOVERY) in (b"0\n0\n", b"0\n1\nt 0 0\n")
        assert disk.read_file(STARTS) == disk.read_file(WATERMARKS) == b"0\n0\n"

    def test_a_stray_is_kept_under_another_name(self) -> None:
        disk = sim_disk()
        directory = opened(disk)
        write(create(directory))
        content = disk.read_file(f"data/t-0/{0:020d}.log")
        path = directory.set_aside("t", 0, unique_hex=HEX)
        assert path == f"data/t-0.{HEX}-stray"
        assert directory.next_removal_ms is None
        close(directory)
        directory = opened(disk)
        assert directory.take_due(10**12) == []
        assert disk.read_file(f"{path}/{0:020d}.log") == content
        assert directory.partitions == {}
        assert directory.strays == [path]


class TestCheckpoints:
    def test_what_is_in_them(self) -> None:
        disk = sim_disk()
        directory = opened(disk)
        for topic in ("a", "b"):
            write(create(directory, topic), 9)
        directory.partitions["a", 0].flush()
        directory.partitions["b", 0].maybe_increment_log_start(3)
        directory.checkpoint({("a", 0): 8, ("b", 0): 7})
        assert disk.read_file(RECOVERY) == b"0\n2\na 0 9\nb 0 0\n"
        assert disk.read_file(STARTS) == b"0\n1\nb 0 3\n"
        assert disk.read_file(WATERMARKS) == b"0\n2\na 0 8\nb 0 7\n"

    def test_a_start_at_the_base_of_a_segment_is_not_written(self) -> None:
        disk = sim_disk()
        directory = opened(disk)
        log = create(directory)
        write(log, 20)
        base = log.segments[1].base_offset
        log.maybe_increment_log_start(base)
        log.delete_old_segments(0, 20)
        assert log.segments[0].base_offset == base
        directory.checkpoint()
        assert disk.read_file(STARTS) == b"0\n0\n"

    def test_they_are_read_at_the_next_start(self) -> None:
        disk = sim_disk()
        directory = opened(disk)
        log = create(directory)
        write(log, 9)
        log.maybe_increment_log_start(3)
        close(directory, t=8)
        directory = opened(disk)
        log = directory.partitions["t", 0]
        assert (log.log_start_offset, log.recovery_point) == (3, 9)
        assert directory.high_watermarks == {("t", 0): 8}

    @pytest.mark.parametrize("path", [RECOVERY, STARTS, WATERMARKS])
    def test_a_damaged_one_costs_time_and_no_data(self, path: str) -> None:
        disk = sim_disk()
        directory = opened(disk)
        write(create(directory), 9)
        close(directory, t=9)
        disk.replace_file(path, b"0\n7\nrubbish")
        disk.remove(MARKER)
        assert opened(disk).partitions["t", 0].log_end_offset == 9

    def test_partitions_that_are_not_there_are_forgotten(self) -> None:
        disk = sim_disk()
        for path in (RECOVERY, STARTS, WATERMARKS):
            disk.replace_file(path, b"0\n1\ngone 0 7\n")
        directory = opened(disk)
        assert directory.high_watermarks == {}
        log = create(directory, "gone")
        assert (log.log_start_offset, log.recovery_point) == (0, 0)
        directory.checkpoint()
        assert disk.read_file(RECOVERY) == b"0\n1\ngone 0 0\n"

    def test_the_recovery_point_is_what_was_flushed(self) -> None:
        disk = sim_disk()
        directory = opened(disk)
        log = create(directory)
        write(log, 3)
        log.flush()
        write(log, 3)
        directory.checkpoint()
        assert disk.read_file(RECOVERY) == b"0\n1\nt 0 3\n"

    def test_a_truncation_lowers_the_recovery_point_on_disk_before_the_log_is_cut(self) -> None:
        disk = sim_disk()
        directory = opened(disk)
        log = create(directory)
        write(log, 5)
        log.flush()
        directory.checkpoint()
        disk.trace = []
        directory.truncate_to(log, 2)
        assert disk.read_file(RECOVERY) == b"0\n1\nt 0 2\n"
        lowered = next(n for n, step in enumerate(disk.trace) if step.startswith("rename") and RECOVERY in step)
        cut = next(n for n, step in enumerate(disk.trace) if step.startswith("truncate") and ".log" in step)
        assert lowered < cut

    def test_an_unclean_start_makes_what_it_found_durable(self) -> None:
        disk = sim_disk()
        directory = opened(disk)
        log = create(directory)
        log.flush()
        write(log, 5)
        directory = opened(disk.crash(keep_page_cache=True))
        assert directory.partitions["t", 0].recovery_point == 5
        again = directory._disk
        assert isinstance(again, SimDisk)
        assert opened(again.crash(keep_page_cache=False)).partitions["t", 0].log_end_offset == 5


def test_space_is_that_of_the_disk() -> None:
    disk = sim_disk()
    disk.faults = DiskFaults(capacity_bytes=1000)
    all_of_it, free = LogDirectory.open(disk, "data").space()
    assert (all_of_it, free) == (1000, 1000)


class TestCleaner:
    PATH = "data/cleaner-offset-checkpoint"

    def test_there_is_no_file_before_anything_was_cleaned(self) -> None:
        disk = sim_disk()
        directory = opened(disk)
        create(directory)
        directory.checkpoint()
        assert not disk.exists(self.PATH)

    def cleaned(self, *, to: int) -> tuple[SimDisk, LogDirectory, PartitionLog]:
        disk = sim_disk()
        directory = opened(disk)
        log = create(directory)
        write(log, 5)
        log.cleaned_to = to
        return disk, directory, log

    def test_how_far_a_log_was_cleaned_is_found_again(self) -> None:
        disk, directory, _ = self.cleaned(to=3)
        close(directory)
        assert disk.read_file(self.PATH) == b"0\n1\nt 0 3\n"
        assert opened(disk).partitions["t", 0].cleaned_to == 3

    def test_a_truncation_takes_it_back_first(self) -> None:
        disk, directory, log = self.cleaned(to=4)
        directory.checkpoint()
        directory.truncate_to(log, 2)
        assert disk.read_file(self.PATH) == b"0\n1\nt 0 2\n"
        assert log.cleaned_to == 2

    def test_a_new_topic_of_the_same_name_does_not_inherit_it(self) -> None:
        disk, directory, _ = self.cleaned(to=4)
        directory.checkpoint()
        directory.delete_partition("t", 0, unique_hex=HEX, now_ms=0)
        assert create(directory, topic_id=OTHER_ID).cleaned_to == -1
        assert disk.read_file(self.PATH) == b"0\n0\n"
