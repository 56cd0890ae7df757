"""The .index of a segment: which batches get an entry, byte for byte, how an offset is found, what is made again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.log.helpers import DIRECTORY, append, batch_of, open_log, read_batches, sim_disk
from tidelog.log.config import LogConfig
from tidelog.log.entry_file import EntryFile
from tidelog.log.index import OFFSET_ENTRY, OffsetIndex
from tidelog.log.partition_log import PartitionLog
from tidelog.sim.disk import SimDisk, SimFile

SIZE = len(batch_of())
"""Of one batch with one record; two of them are 152 bytes."""
INDEX = f"{DIRECTORY}/{0:020d}.index"


def config_of(interval: int) -> LogConfig:
    return LogConfig(segment_bytes=100_000, index_interval_bytes=interval)


def entries(*pairs: tuple[int, int]) -> bytes:
    return b"".join(pack(">ii", *pair) for pair in pairs)


def written(disk: SimDisk, count: int, interval: int = 2 * SIZE - 1) -> LogConfig:
    config = config_of(interval)
    log = open_log(disk, config)
    for _ in range(count):
        append(log)
    log.close(0)
    return config


def test_every_batch_behind_more_than_the_interval_has_an_entry_but_never_the_first() -> None:
    disk = sim_disk()
    written(disk, 7)
    assert disk.read_file(INDEX) == entries((2, 2 * SIZE), (4, 4 * SIZE), (6, 6 * SIZE))


def test_a_counter_that_equals_the_interval_is_not_enough() -> None:
    disk = sim_disk()
    written(disk, 7, interval=2 * SIZE)
    assert disk.read_file(INDEX) == entries((3, 3 * SIZE), (6, 6 * SIZE))


def test_an_interval_of_zero_still_leaves_the_first_batch_out() -> None:
    disk = sim_disk()
    written(disk, 3, interval=0)
    assert disk.read_file(INDEX) == entries((1, SIZE), (2, 2 * SIZE))


def test_an_entry_names_the_last_offset_of_its_batch() -> None:
    disk = sim_disk()
    log = open_log(disk, config_of(0))
    append(log, batch_of(3))
    position = log.size_bytes
    append(log, batch_of(4))
    log.close(0)
    assert disk.read_file(INDEX) == entries((6, position))


def test_offsets_count_from_the_base_of_the_segment() -> None:
    disk = sim_disk()
    log = open_log(disk, config_of(0))
    append(log, batch_of(5))
    log.roll(0)
    append(log)
    append(log)
    log.close(0)
    assert disk.read_file(INDEX) == b""
    assert disk.read_file(f"{DIRECTORY}/{5:020d}.index") == entries((1, SIZE))


def test_a_follower_indexes_a_run_of_batches_as_the_leader_did() -> None:
    leaders, followers = sim_disk(), sim_disk()
    written(leaders, 9)
    log = open_log(followers, config_of(2 * SIZE - 1))
    source = open_log(leaders, config_of(2 * SIZE - 1), clean=True)
    batches = read_batches(source)
    log.append_as_follower(b"".join(batches[:4]), now_ms=0)
    log.append_as_follower(b"".join(batches[4:]), now_ms=0)
    log.close(0)
    assert followers.read_file(INDEX) == leaders.read_file(INDEX) != b""


def test_the_counter_starts_again_when_a_segment_is_opened() -> None:
    disk = sim_disk()
    config = written(disk, 4)
    log = open_log(disk, config, clean=True)
    for _ in range(3):
        append(log)
    log.close(0)
    # Without the restart batch 4 would have been next; with it two more batches must pass.
    assert disk.read_file(INDEX) == entries((2, 2 * SIZE), (6, 6 * SIZE))


def test_an_empty_log_and_a_small_one_end_with_an_index_of_no_bytes() -> None:
    for count in (0, 1):
        disk = sim_disk()
        written(disk, count)
        assert disk.read_file(INDEX) == b""


def test_lookup_gives_the_nearest_batch_that_does_not_start_behind_the_offset() -> None:
    disk = sim_disk()
    index = OffsetIndex(disk, "data/x.index", 100, new=True)
    for offset, position in ((104, 50), (109, 90), (120, 300)):
        index.add(offset, position)
    for _ in range(2):
        found = {offset: index.lookup(offset) for offset in (100, 103, 104, 108, 109, 119, 120, 1000)}
        assert found == {100: 0, 103: 0, 104: 50, 108: 50, 109: 90, 119: 90, 120: 300, 1000: 300}
        index.finish()  # the second time from the file


@pytest.mark.parametrize("finished", [False, True])
def test_truncation_drops_the_entries_of_batches_that_reach_the_offset(finished: bool) -> None:
    index = OffsetIndex(sim_disk(), "data/x.index", 100, new=True)
    for offset in (104, 109, 120):
        index.add(offset, offset)
    if finished:
        index.finish()
    index.truncate_to(109)
    assert (index.count, index.last_position()) == (1, 104)


def test_a_thousand_entries_are_found_in_the_file_and_in_memory() -> None:
    index = OffsetIndex(sim_disk(), "data/x.index", 0, new=True)
    for number in range(1300):
        index.add(number * 10 + 9, number * 7)
    assert all(index.lookup(number * 10 + 9) == number * 7 for number in range(1300))
    assert all(index.lookup(number * 10 + 8) == max(0, number - 1) * 7 for number in range(1300))


def replace(disk: SimDisk, path: str, data: bytes) -> None:
    disk.replace_file(path, data)


def positions(log: PartitionLog) -> list[int]:
    found = [log.segments[0].find(offset) for offset in range(log.log_end_offset)]
    return [at[0] for at in found if at is not None]


DAMAGE = {
    "no multiple of 8": entries((2, 2 * SIZE)) + b"\0\0\0",
    "zero tail": entries((2, 2 * SIZE), (4, 4 * SIZE)) + bytes(80),
    "ends below its start": entries((4, 4 * SIZE), (2, 2 * SIZE)),
    "inside a batch": entries((2, 2 * SIZE + 5)),
    "behind the end": entries((2, 2 * SIZE), (90, 90 * SIZE)),
    "empty": b"",
}


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("data", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_index_misleads_nobody(data: bytes, clean: bool) -> None:
    disk = sim_disk()
    config = written(disk, 7)
    replace(disk, INDEX, data)
    log = open_log(disk, config, clean=clean)
    assert log.log_end_offset == 7
    assert positions(log) == [number * SIZE for number in range(7)]


def test_recovery_makes_a_missing_or_damaged_index_again_byte_for_byte() -> None:
    disk = sim_disk()
    config = written(disk, 9)
    before = disk.read_file(INDEX)
    assert before
    for data in (None, *DAMAGE.values()):
        disk.remove(INDEX)
        if data is not None:
            replace(disk, INDEX, data)
        open_log(disk, config).close(0)
        assert disk.read_file(INDEX) == before


def test_a_missing_index_is_made_again_even_after_a_clean_stop() -> None:
    disk = sim_disk()
    config = config_of(4096)  # what a rebuild for a reader uses
    log = open_log(disk, config)
    for _ in range(5):
        append(log, batch_of(value=bytes(3000)))
    log.close(0)
    before = disk.read_file(INDEX)
    assert before
    disk.remove(INDEX)
    open_log(disk, config, clean=True).close(0)
    assert disk.read_file(INDEX) == before


@pytest.mark.parametrize("count", [5, 700])
@pytest.mark.parametrize("change", [lambda data: data, lambda data: data[:-9], lambda data: data + b"\0" * 16])
def test_an_index_that_begins_again_keeps_what_is_right_in_its_file(
    count: int, change: Callable[[bytes], bytes]
) -> None:
    disk = sim_disk()
    disk.make_dirs(DIRECTORY)
    path = f"{DIRECTORY}/x.index"
    index = OffsetIndex(disk, path, 0, new=True)
    for number in range(count):
        index.add(number, number * 100)
    index.finish()
    whole = disk.read_file(path)
    assert whole is not None
    disk.replace_file(path, change(whole))
    again = OffsetIndex(disk, path, 0, new=False)
    again.reset()
    for number in range(count):
        again.add(number, number * 100)
        assert again.count == number + 1
    assert again.lookup(count - 1) == (count - 1) * 100
    again.finish()
    assert disk.read_file(path) == whole
    again.reset()
    again.add(1, 50)
    again.finish()
    assert disk.read_file(path) == pack(">ii", 1, 50), "nothing of another index stays"


def test_recovery_cuts_no_index_that_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = sim_disk()
    config = LogConfig(index_interval_bytes=0)
    log = open_log(disk, config)
    for _ in range(5):
        append(log)
    log.close(0)
    cut: list[str] = []
    monkeypatch.setattr(SimFile, "truncate", lambda file, size: cut.append(file.path))
    open_log(disk, config).close(0)
    assert cut == []


@settings(max_examples=40)
@given(st.integers(0, 2_000), st.lists(st.tuples(st.sampled_from("fffgt"), st.integers(0, 7_000)), max_size=40))
def test_whatever_was_looked_up_before_an_entry_is_found_where_it_is(count: int, steps: list[tuple[str, int]]) -> None:
    disk = sim_disk()
    disk.make_dirs(DIRECTORY)
    index = EntryFile(disk, f"{DIRECTORY}/x", OFFSET_ENTRY, new=True)
    keys: list[int] = []
    for step, number in [("a", count), *steps, ("a", 600), *reversed(steps)]:
        if step == "a":
            for _ in range(number):
                keys.append(3 * len(keys) + 1)
                index.add(keys[-1], len(keys))
        elif step == "f":
            assert index.floor(number) == bisect_right(keys, number) - 1
        elif step == "g" and keys:
            assert index.get(number % len(keys)) == (keys[number % len(keys)], number % len(keys) + 1)
        elif step == "t" and number < len(keys):
            index.truncate(number)
            del keys[number:]
