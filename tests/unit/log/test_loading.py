"""Opening a partition's directory: what a crash, a cleaner or another broker may have left in it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from tests.unit.log.helpers import DIRECTORY, TINY, append, batch_of, open_log, read_batches, sim_disk
from tidelog.log.config import LogConfig
from tidelog.log.errors import DamagedLogError
from tidelog.log.names import segment_name
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.batch import assign_offsets, read_header
from tidelog.sim.disk import DiskFaults, SimDisk, SimulatedCrash

COMPACT = replace(TINY, cleanup_policy=frozenset({"compact"}))


def path(base_offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{segment_name(base_offset, suffix)}"


def stored(count: int, base_offset: int, *, epoch: int = 0, value: bytes = b"value") -> bytes:
    batch = batch_of(count, value=value)
    assign_offsets(batch, base_offset, epoch)
    return bytes(batch)


def write(disk: SimDisk, name: str, *parts: bytes) -> None:
    disk.make_dirs(DIRECTORY)
    file = disk.open(name, create=True)
    file.truncate(0)
    file.append(parts)


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_torn_batch_at_the_end_is_cut() -> None:
    disk = sim_disk()
    whole, torn = stored(2, 0), stored(1, 2)
    for length in range(len(torn)):
        write(disk, path(0, ".log"), whole, torn[:length])
        log = open_log(disk)
        assert log.log_end_offset == 2
        assert read_batches(log) == [whole]
        assert disk.read_file(path(0, ".log")) == whole


def test_every_damaged_byte_behind_the_epoch_is_found() -> None:
    disk = sim_disk()
    whole, next_one = stored(1, 0), stored(1, 1)
    for position in range(16, len(next_one)):
        damaged = bytearray(next_one)
        damaged[position] ^= 0x40
        write(disk, path(0, ".log"), whole, damaged)
        assert open_log(disk).log_end_offset == 1


def test_a_length_beyond_the_file_is_not_believed() -> None:
    disk = sim_disk()
    whole, forged = stored(1, 0), bytearray(stored(1, 1))
    for length in (0x7FFFFFFF, -1, 0, 48, len(forged) - 11):
        forged[8:12] = length.to_bytes(4, "big", signed=True)
        write(disk, path(0, ".log"), whole, forged)
        assert open_log(disk).log_end_offset == 1


def test_a_batch_that_goes_back_in_offsets_ends_the_log() -> None:
    disk = sim_disk()
    write(disk, path(0, ".log"), stored(3, 0), stored(5, 2))
    assert open_log(disk).log_end_offset == 3


def test_a_batch_of_an_older_epoch_ends_the_log() -> None:
    """A power cut kept the new batch, and behind it one that had been truncated before the new one was written."""
    disk = sim_disk()
    write(disk, path(0, ".log"), stored(1, 0, epoch=1), stored(1, 1, epoch=3), stored(1, 2, epoch=2))
    assert open_log(disk).log_end_offset == 2


def test_an_older_epoch_ends_the_log_also_at_the_start_of_a_segment() -> None:
    disk = sim_disk()
    write(disk, path(0, ".log"), stored(1, 0, epoch=3))
    write(disk, path(1, ".log"), stored(1, 1, epoch=2))
    log = open_log(disk)
    assert log.log_end_offset == 1


def test_what_follows_a_damaged_segment_is_dropped() -> None:
    for config in (TINY, COMPACT):
        disk = sim_disk()
        write(disk, path(0, ".log"), stored(1, 0), stored(1, 1)[:-1])
        write(disk, path(2, ".log"), stored(1, 2))
        log = open_log(disk, config)
        assert bases(log) == [0]
        assert not disk.exists(path(2, ".log"))
        append(log)
        assert log.log_end_offset == 2


def test_bytes_behind_the_last_batch_of_a_segment_cost_nothing_that_follows() -> None:
    disk = sim_disk()
    write(disk, path(0, ".log"), stored(1, 0), b"damage")
    write(disk, path(1, ".log"), stored(1, 1))
    log = open_log(disk)
    assert bases(log) == [0, 1]
    assert disk.read_file(path(0, ".log")) == stored(1, 0)


def test_a_segment_behind_a_lost_tail_is_dropped() -> None:
    """The tail was lost at a batch boundary: only the next segment's name tells."""
    disk = sim_disk()
    write(disk, path(0, ".log"), stored(1, 0))
    write(disk, path(5, ".log"), stored(1, 5))
    assert bases(open_log(disk)) == [0]


def test_the_cleaner_may_leave_gaps() -> None:
    disk = sim_disk()
    write(disk, path(0, ".log"), stored(1, 0))
    write(disk, path(5, ".log"), stored(1, 5))
    log = open_log(disk, COMPACT)
    assert bases(log) == [0, 5]
    assert log.log_end_offset == 6
    assert len(read_batches(log)) == 2


def test_a_gap_below_the_recovery_point_drops_nothing() -> None:
    """Of several expired segments one came back: the flushed segments behind it must not pay for that."""
    disk = sim_disk()
    write(disk, path(0, ".log"), stored(1, 0))
    write(disk, path(5, ".log"), stored(1, 5))
    log = open_log(disk, recovery_point=5)
    assert bases(log) == [0, 5]
    assert log.log_end_offset == 6


def test_segments_below_the_recovery_point_are_not_read() -> None:
    disk = sim_disk()
    write(disk, path(0, ".log"), b"no batch at all, but nobody looks")
    write(disk, path(3, ".log"), stored(2, 3))
    write(disk, path(5, ".log"), stored(1, 5))
    assert open_log(disk, recovery_point=6).log_end_offset == 6
    assert disk.read_file(path(0, ".log")) == b"no batch at all, but nobody looks"


def test_a_segment_that_ends_at_the_recovery_point_is_checked() -> None:
    """It was truncated to there and then rolled, and a power cut gave back what had been cut."""
    disk = sim_disk()
    write(disk, path(0, ".log"), stored(1, 0), stored(1, 1))
    write(disk, path(1, ".log"), stored(1, 1, epoch=1))
    log = open_log(disk, recovery_point=1)
    assert bases(log) == [0, 1]
    assert read_batches(log) == [stored(1, 0), stored(1, 1, epoch=1)]


def test_a_log_start_beyond_the_end_begins_a_new_segment_that_stays() -> None:
    disk = sim_disk()
    log = open_log(disk)
    append(log)
    log.flush()
    disk = disk.crash(keep_page_cache=True)
    assert open_log(disk, log_start_offset=7).log_end_offset == 7
    disk = disk.crash(keep_page_cache=False)
    log = open_log(disk)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)


def test_leftovers_are_removed() -> None:
    disk = sim_disk()
    write(disk, path(0, ".log"), stored(1, 0))
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000003.index.cleaned",
        "leader-epoch-checkpoint.tmp",
    ):
        write(disk, f"{DIRECTORY}/{name}", b"x")
    write(disk, path(9, ".index"), b"12345678")
    open_log(disk)
    assert [name for name in disk.list_dir(DIRECTORY) if not name.startswith("00000000000000000000")] == [
        "leader-epoch-checkpoint"
    ]


def test_a_complete_cleaned_segment_takes_the_place_of_those_it_spans() -> None:
    disk = sim_disk()
    cleaned = [stored(1, 0), stored(1, 6)]
    write(disk, path(0, ".log.swap"), *cleaned)
    write(disk, path(0, ".index.swap"))
    for base in (0, 3, 6):
        write(disk, path(base, ".log"), stored(3 if base < 6 else 1, base))
        write(disk, path(base, ".index"))
    write(disk, path(7, ".log"), stored(1, 7))
    log = open_log(disk, COMPACT)
    assert bases(log) == [0, 7]
    assert read_batches(log) == [*cleaned, stored(1, 7)]
    assert not [name for name in disk.list_dir(DIRECTORY) if name.endswith(".swap")]


def test_a_cleaned_file_beside_it_says_that_the_swap_was_not_complete() -> None:
    disk = sim_disk()
    write(disk, path(0, ".log"), stored(3, 0))
    write(disk, path(0, ".log.swap"), stored(1, 0))
    write(disk, path(0, ".log.cleaned"), stored(1, 0))
    log = open_log(disk, COMPACT)
    assert read_batches(log) == [stored(3, 0)]


def test_a_clean_start_without_an_index_builds_it() -> None:
    disk = sim_disk()
    log = open_log(disk)
    for _ in range(12):
        append(log)
    log.close(0)
    kept = disk.read_file(path(0, ".index"))
    assert kept
    disk.remove(path(0, ".index"))
    log = open_log(disk, LogConfig(), clean=True)
    assert disk.exists(path(0, ".index"))
    assert log.log_end_offset == 12
    assert len(read_batches(log)) == 12


def test_a_clean_start_with_a_torn_log_is_refused_by_name_and_nothing_is_cut() -> None:
    disk = sim_disk()
    log = open_log(disk)
    append(log)
    log.close(0)
    disk.open(path(0, ".log")).append((b"torn",))
    before = disk.read_file(path(0, ".log"))
    with pytest.raises(DamagedLogError, match=path(0, ".log")):
        open_log(disk, clean=True)
    assert disk.read_file(path(0, ".log")) == before
    assert open_log(disk).log_end_offset == 1


def test_epochs_come_from_the_batches_when_their_file_is_gone_empty_or_damaged() -> None:
    disk = sim_disk()
    log = open_log(disk)
    for epoch in (1, 1, 4):
        append(log, leader_epoch=epoch)
    log.close(0)
    for content in (None, b"", b"0\n9\n1 0\n", b"\0\0\0"):
        if content is None:
            disk.remove(log.leader_epochs.path)
        else:
            write(disk, log.leader_epochs.path, content)
        assert open_log(disk, clean=True).leader_epochs.entries == ((1, 0), (4, 2))


def test_epochs_behind_the_recovery_point_are_those_of_the_batches() -> None:
    """The file with the new epoch was kept, the batches of the new epoch were not: the old ones are there again."""
    disk = sim_disk()
    write(disk, path(0, ".log"), stored(1, 0, epoch=1), stored(1, 1, epoch=1))
    write(disk, f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n2\n1 0\n2 1\n")
    assert open_log(disk).leader_epochs.entries == ((1, 0),)
    assert disk.read_file(f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n1\n1 0\n"


def test_a_crash_while_epochs_are_found_again_loses_none_of_them() -> None:
    """The damaged file must not be replaced by one that knows only the segments that were checked."""
    for number in range(1, 40):
        disk = sim_disk(number)
        write(disk, path(0, ".log"), stored(1, 0, epoch=1))
        write(disk, path(1, ".log"), stored(1, 1, epoch=2))
        write(disk, path(2, ".log"), stored(1, 2, epoch=3))
        write(disk, f"{DIRECTORY}/leader-epoch-checkpoint", b"torn")
        disk.faults = DiskFaults(crash_at=disk.operations + number)
        with suppress(SimulatedCrash):
            open_log(disk, recovery_point=2)
        log = open_log(disk.crash(keep_page_cache=True), recovery_point=2)
        assert log.leader_epochs.entries == ((1, 0), (2, 1), (3, 2))


def test_a_stale_index_entry_does_not_lead_into_the_middle_of_a_batch() -> None:
    disk = sim_disk()
    log = open_log(disk, replace(TINY, segment_bytes=10_000))
    for _ in range(20):
        append(log)
    log.close(0)
    index = path(0, ".index")
    entries = disk.read_file(index)
    assert entries is not None
    wrong = bytearray(entries)
    wrong[12:16] = (int.from_bytes(wrong[12:16], "big") + 5).to_bytes(4, "big")
    write(disk, index, wrong)
    log = open_log(disk, replace(TINY, segment_bytes=10_000), clean=True)
    for offset in range(20):
        assert read_header(log.read(offset, 100, end_offset=20).data).base_offset == offset
    assert disk.read_file(index) != wrong
