"""The .timeindex of a segment: the running maximum, when it is written, how a time is found, what is made again."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

import pytest

from tests.unit.log.helpers import DIRECTORY, append, batch_of, open_log, sim_disk
from tidelog.log.config import LogConfig
from tidelog.log.errors import CorruptFileError
from tidelog.log.index import TimeIndex
from tidelog.sim.disk import SimDisk

SIZE = len(batch_of())
TIME_INDEX = f"{DIRECTORY}/{0:020d}.timeindex"
CONFIG = LogConfig(segment_bytes=100_000, index_interval_bytes=2 * SIZE - 1)
"""Batches 2, 4, 6 and so on are indexed."""


def entries(*pairs: tuple[int, int]) -> bytes:
    return b"".join(pack(">qi", *pair) for pair in pairs)


def written(disk: SimDisk, timestamps: Sequence[int]) -> None:
    log = open_log(disk, CONFIG)
    for timestamp in timestamps:
        append(log, batch_of(timestamp=timestamp))
    log.close(0)


@pytest.mark.parametrize(
    ("timestamps", "expected"),
    [
        ([], ()),
        ([1000], ((1000, 0),)),
        ([-1, -1, -1, -1], ()),
        # In order: batch 2 and batch 4 write what they themselves raised, the close adds nothing.
        ([10, 20, 30, 40, 50], ((30, 2), (50, 4))),
        # The last batch raises the maximum without an offset entry: the close writes it.
        ([10, 20, 30, 40], ((30, 2), (40, 3))),
        # Batch 2 writes what batch 1 raised; batch 4 has nothing newer to say.
        ([10, 90, 30, 40, 50], ((90, 1),)),
        # Equal is not greater: the first one that had it is named.
        ([10, 90, 90, 90, 90], ((90, 1),)),
        ([90, 10, 10, 10, 91, 10, 10], ((90, 0), (91, 4))),
    ],
)
def test_the_running_maximum_is_written_with_each_offset_entry_and_at_the_end(
    timestamps: list[int], expected: tuple[tuple[int, int], ...]
) -> None:
    disk = sim_disk()
    written(disk, timestamps)
    assert disk.read_file(TIME_INDEX) == entries(*expected)


def test_the_last_offset_of_the_batch_is_named() -> None:
    disk = sim_disk()
    log = open_log(disk, CONFIG)
    append(log, batch_of(5, timestamp=100))
    log.close(0)
    assert disk.read_file(TIME_INDEX) == entries((104, 4))


def test_a_roll_writes_the_last_entry_and_the_next_segment_starts_anew() -> None:
    disk = sim_disk()
    log = open_log(disk, CONFIG)
    append(log, batch_of(timestamp=500))
    append(log, batch_of(timestamp=400))
    log.roll(0)
    assert disk.read_file(TIME_INDEX) == entries((500, 0))
    append(log, batch_of(timestamp=300))
    append(log, batch_of(timestamp=350))
    log.close(0)
    assert disk.read_file(f"{DIRECTORY}/{2:020d}.timeindex") == entries((350, 1))


def test_a_second_close_adds_nothing() -> None:
    disk = sim_disk()
    written(disk, [10, 20, 30, 40])
    log = open_log(disk, CONFIG, clean=True)
    log.close(0)
    assert disk.read_file(TIME_INDEX) == entries((30, 2), (40, 3))


def test_after_a_restart_only_what_is_newer_than_the_last_entry_is_added() -> None:
    disk = sim_disk()
    written(disk, [10, 20, 30, 40])
    log = open_log(disk, CONFIG, clean=True)
    append(log, batch_of(timestamp=40))
    append(log, batch_of(timestamp=35))
    log.close(0)
    assert disk.read_file(TIME_INDEX) == entries((30, 2), (40, 3))
    log = open_log(disk, CONFIG, clean=True)
    append(log, batch_of(timestamp=41))
    log.close(0)
    assert disk.read_file(TIME_INDEX) == entries((30, 2), (40, 3), (41, 6))


def test_truncation_forgets_the_entries_behind_the_end() -> None:
    disk = sim_disk()
    log = open_log(disk, CONFIG)
    for timestamp in (10, 20, 30, 40, 50):
        append(log, batch_of(timestamp=timestamp))
    log.truncate_to(4)
    append(log, batch_of(timestamp=31))
    log.close(0)
    # Batch 3 still has 40; the entry of batch 4 is gone.
    assert disk.read_file(TIME_INDEX) == entries((30, 2), (40, 3))


def test_lookup_gives_an_offset_before_which_nothing_is_so_new() -> None:
    index = TimeIndex(sim_disk(), "data/x.timeindex", 100, new=True)
    for timestamp, offset in ((10, 105), (20, 107), (30, 120)):
        index.maybe_add(timestamp, offset)
    for _ in range(2):
        found = {timestamp: index.lookup(timestamp) for timestamp in (0, 10, 11, 20, 21, 30, 31)}
        # The entry (20, 107) says that nothing up to 107 is larger than 20: for 20 itself one must start before it.
        assert found == {0: 100, 10: 100, 11: 105, 20: 105, 21: 107, 30: 107, 31: 120}
        index.finish()  # the second time from the file


def test_an_entry_that_is_not_newer_is_skipped() -> None:
    index = TimeIndex(sim_disk(), "data/x.timeindex", 0, new=True)
    index.maybe_add(10, 1)
    index.maybe_add(10, 2)
    index.maybe_add(9, 3)
    index.maybe_add(-1, 4)
    assert (index.count, index.last()) == (1, (10, 1))


DAMAGE = {
    "no multiple of 12": entries((30, 2)) + b"\0",
    "zero tail": entries((30, 2), (50, 4)) + bytes(120),
    "ends below its start": entries((50, 4), (30, 2)),
    "missing": None,
}


@pytest.mark.parametrize("data", [data for data in DAMAGE.values() if data is not None])
def test_what_cannot_be_entries_is_told_and_not_used(data: bytes) -> None:
    disk = sim_disk()
    disk.replace_file("data/x.timeindex", data)
    index = TimeIndex(disk, "data/x.timeindex", 0, new=False)
    for _ in range(2):
        with pytest.raises(CorruptFileError):
            index.lookup(40)


def damage(disk: SimDisk, data: bytes | None) -> None:
    disk.remove(TIME_INDEX)
    if data is not None:
        disk.replace_file(TIME_INDEX, data)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("data", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_time_index_misleads_nobody(data: bytes | None, clean: bool) -> None:
    disk = sim_disk()
    log = open_log(disk, CONFIG)
    for timestamp in (10, 20, 30, 40, 50):
        append(log, batch_of(timestamp=timestamp))
    log.roll(0)
    append(log, batch_of(timestamp=1))
    log.close(0)
    damage(disk, data)
    log = open_log(disk, CONFIG, clean=clean)
    for timestamp, offset in ((5, 0), (10, 0), (11, 1), (30, 2), (41, 4), (50, 4)):
        found = log.offset_for_timestamp(timestamp, end_offset=5)
        assert found is not None
        assert found.offset == offset
    assert log.offset_for_timestamp(51, end_offset=5) is None
    newest = log.max_timestamp_offset()
    assert newest is not None
    assert newest[:2] == (50, 4)


@pytest.mark.parametrize("data", DAMAGE.values(), ids=DAMAGE.keys())
def test_recovery_makes_it_again_byte_for_byte(data: bytes | None) -> None:
    disk = sim_disk()
    written(disk, [10, 90, 30, 95, 20, 96])
    before = disk.read_file(TIME_INDEX)
    assert before == entries((90, 1), (95, 3), (96, 5))
    damage(disk, data)
    open_log(disk, CONFIG).close(0)
    assert disk.read_file(TIME_INDEX) == before


@pytest.mark.parametrize("damage", [bytes(13), entries((10, 0)) + bytes(12)], ids=["odd size", "zero tail"])
def test_a_damaged_time_index_of_the_active_segment_does_not_stop_a_clean_start(damage: bytes) -> None:
    disk = sim_disk()
    written(disk, [10, 20, 30])
    disk.replace_file(TIME_INDEX, damage)
    log = open_log(disk, CONFIG, clean=True)
    found = log.offset_for_timestamp(25, end_offset=log.log_end_offset)
    assert found is not None and (found.timestamp, found.offset) == (30, 2)
