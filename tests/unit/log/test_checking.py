"""Damage is never served: a reader gets bytes that were written, or Kafka's error for what is broken."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.log.helpers import DIRECTORY, TINY, append, batch_of, open_log, read_batches, sim_disk
from tidelog.log import checking
from tidelog.log.config import LogConfig
from tidelog.log.errors import LogError
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.batch import BatchHeader, iter_headers, read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.sim.disk import SimDisk

# Dense and sparse indexes: damage is met at an entry, and on the way from one.
CONFIGS = [TINY, LogConfig(segment_bytes=600, index_interval_bytes=1, segment_index_bytes=1200)]


def written(config: LogConfig = TINY) -> tuple[SimDisk, list[bytes]]:
    """The disk of a log that was closed, with some segments and epochs, and its batches."""
    disk = sim_disk()
    log = open_log(disk, config)
    for number in range(20):
        append(log, batch_of(1 + number % 3, timestamp=1000 + number, value=b"%03d" % number), leader_epoch=number // 6)
    batches = read_batches(log)
    assert len(log.segments) > 3
    log.close(0)
    return disk, batches


def change(disk: SimDisk, name: str, edit: Callable[[bytearray], object]) -> None:
    file = disk.open(f"{DIRECTORY}/{name}")
    content = bytearray(file.read(0, file.size()))
    edit(content)
    file.truncate(0)
    file.append([content])


def names(disk: SimDisk, suffix: str) -> list[str]:
    return [name for name in disk.list_dir(DIRECTORY) if name.endswith(suffix)]


def served(log: PartitionLog, batches: list[bytes], max_bytes: int = 300, *, is_whole: bool = True) -> list[bytes]:
    """Read from every batch on; whatever comes must be right, and begin with the batch that was asked for."""
    found = []
    for number, wanted in enumerate(batches):
        header = read_header(wanted)
        try:
            data = log.read(header.last_offset, max_bytes, end_offset=log.log_end_offset).data
        except LogError as error:
            assert error.error_code == ErrorCode.CORRUPT_MESSAGE
            continue
        if is_whole:
            assert data and b"".join(batches[number:]).startswith(data)
        else:
            # What is missing at the end of a file looks like what a cleaner took: the next segment is read on.
            assert any(b"".join(batches[later:]).startswith(data) for later in range(number, len(batches)))
        found.append(wanted)
    return found


def corrupt_at(log: PartitionLog, offset: int) -> bool:
    try:
        log.read(offset, 1000, end_offset=log.log_end_offset)
    except LogError as error:
        assert error.error_code == ErrorCode.CORRUPT_MESSAGE
        return True
    return False


@pytest.mark.parametrize("config", CONFIGS, ids=["sparse", "dense"])
def test_a_flipped_bit_anywhere_in_an_old_segment_costs_the_readers_of_that_batch_alone(config: LogConfig) -> None:
    disk, batches = written(config)
    name = names(disk, ".log")[1]
    size = disk.open(f"{DIRECTORY}/{name}").size()
    first, behind = (int(name.partition(".")[0]) for name in names(disk, ".log")[1:3])
    inside = [batch for batch in batches if first <= read_header(batch).base_offset < behind]
    for position in range(size):
        for bit in (1, 0x80):

            def flip(content: bytearray, position: int = position, bit: int = bit) -> None:
                content[position] ^= bit

            change(disk, name, flip)
            log = open_log(disk, config, clean=True)
            found = served(log, batches)
            bad = next(batch for number, batch in enumerate(inside) if position < sum(map(len, inside[: number + 1])))
            assert bad not in found
            # Those before it and in other segments are whole. Of those behind, in the same segment, an index entry may
            # help to some.
            lost = [batch for batch in batches if batch not in found]
            assert set(lost) <= set(inside[inside.index(bad) :])
            change(disk, name, flip)


@settings(max_examples=150)
@given(st.data())
def test_whatever_happens_to_old_segments_and_their_indexes(data: st.DataObject) -> None:
    config = data.draw(st.sampled_from(CONFIGS))
    disk, batches = written(config)
    old = [name for suffix in (".log", ".index", ".timeindex") for name in names(disk, suffix)[:-1]]
    for _ in range(data.draw(st.integers(1, 3))):

        def damage(content: bytearray) -> None:
            start = data.draw(st.integers(0, max(0, len(content) - 1)))
            end = data.draw(st.integers(start, len(content)))
            kind = data.draw(st.sampled_from(["cut", "zeros", "noise", "shift", "copy"]))
            if kind == "cut":
                del content[start:]
            elif kind == "zeros":
                content[start:end] = bytes(end - start)
            elif kind == "noise":
                content[start:end] = data.draw(st.binary(min_size=end - start, max_size=end - start))
            elif kind == "shift":
                del content[start:end]
            else:
                content[start:start] = content[start:end]

        change(disk, data.draw(st.sampled_from(old)), damage)
    log = open_log(disk, config, clean=True)
    served(log, batches, data.draw(st.integers(0, 700)), is_whole=False)
    for timestamp in (0, 1005, 1019, 5000):
        try:
            log.offset_for_timestamp(timestamp, end_offset=log.log_end_offset)
        except LogError as error:
            assert error.error_code == ErrorCode.CORRUPT_MESSAGE


@given(st.integers(0, 2**32))
@settings(max_examples=50)
def test_damaged_indexes_cost_nothing_but_time(seed: int) -> None:
    random = Random(seed)
    disk, batches = written(random.choice(CONFIGS))
    for name in names(disk, ".index")[:-1]:
        change(disk, name, lambda content: content.__setitem__(slice(0, None), random.randbytes(len(content))))
    log = open_log(disk, TINY, clean=True)
    assert served(log, batches) == batches
    assert log.damaged_batches == 0


def flip_value(content: bytearray) -> None:
    content[-1] ^= 1


def test_batches_before_the_bad_one_are_served_and_its_own_readers_hear_of_it_once_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, batches = written()
    name = names(disk, ".log")[0]
    change(disk, name, flip_value)
    log = open_log(disk, clean=True)
    end = log.log_end_offset
    inside = log.segments[1].base_offset
    bad = next(batch for batch in batches if read_header(batch).next_offset == inside)
    assert log.read(0, 10_000, end_offset=end).data == b"".join(batches[: batches.index(bad)])
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert corrupt_at(log, inside - 1)
    assert len(caplog.records) == 1 and name in caplog.text and "CRC" in caplog.text
    assert log.damaged_batches == 1
    assert not corrupt_at(log, inside)


def test_a_file_that_became_shorter_is_an_error_also_where_it_was_trusted() -> None:
    disk = sim_disk()
    log = open_log(disk)
    for _ in range(4):
        append(log)
    whole = log.read(0, 10_000, end_offset=4).data
    file = log.segments[0].log
    for size in range(file.size() - 1, -1, -1):
        file.truncate(size)
        kept = size // (len(whole) // 4) * (len(whole) // 4)
        for offset in range(4):
            start = offset * (len(whole) // 4)
            if start < kept:
                assert log.read(offset, 10_000, end_offset=4).data == whole[start:kept]
            else:
                assert corrupt_at(log, offset)


@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 48, 400, 2**31 - 1])
def test_no_length_field_makes_us_read_much_or_for_ever(length: int) -> None:
    disk, batches = written()

    def edit(content: bytearray) -> None:
        position = len(batches[0])
        content[position + 8 : position + 12] = length.to_bytes(4, "big", signed=True)

    change(disk, names(disk, ".log")[0], edit)
    log = open_log(disk, clean=True)
    wanted = read_header(batches[1])
    for max_bytes in (0, 1, 100, 10_000):
        with pytest.raises(LogError) as caught:
            log.read(wanted.base_offset, max_bytes, end_offset=log.log_end_offset)
        assert caught.value.error_code == ErrorCode.CORRUPT_MESSAGE
    assert log.read(0, 10_000, end_offset=log.log_end_offset).data == batches[0]


def test_what_was_checked_is_not_checked_again_and_the_tail_never(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, batches = written()
    log = open_log(disk, clean=True)
    checked: list[int] = []

    def count(batch: memoryview, header: BatchHeader) -> bool:
        checked.append(header.base_offset)
        return True

    monkeypatch.setattr(checking, "crc_is_valid", count)
    assert read_batches(log) == batches
    assert checked == [read_header(batch).base_offset for batch in batches]
    assert all(segment.trusted_from == 0 for segment in log.segments)
    checked.clear()
    assert read_batches(log) == batches
    appended = append(log)
    assert log.read(appended.base_offset, 1000, end_offset=log.log_end_offset).data
    assert not checked


def test_what_recovery_looked_at_and_what_follows_a_truncation_is_trusted() -> None:
    disk, _ = written()
    log = open_log(disk, clean=False)
    assert all(segment.trusted_from == 0 for segment in log.segments)
    log.close(0)
    log = open_log(disk, clean=True)
    active = log.segments[-1]
    assert active.trusted_from == active.size > 0
    log.truncate_to(active.base_offset + 1)
    assert log.segments[-1].trusted_from == log.segments[-1].size


def test_gaps_that_a_cleaner_left_are_no_damage_but_an_offset_that_grew_into_the_next_batch_is() -> None:
    disk = sim_disk()
    log = open_log(disk)
    batches = []
    for base in range(0, 200, 10):
        batch = batch_of(2)
        batch[:8] = base.to_bytes(8, "big")
        log.append_as_follower(batch, now_ms=0)
        batches.append(bytes(batch))
    log.close(0)
    log = open_log(disk, clean=True)
    assert read_batches(log) == batches
    assert served(log, batches) == batches
    log.close(0)
    for offset in (11, 19):  # 19 reaches into the batch at 20
        change(disk, names(disk, ".log")[0], lambda content, to=offset: content.__setitem__(len(batches[0]) + 7, to))
        log = open_log(disk, clean=True)
        assert corrupt_at(log, 10) == (offset == 19)
        assert not corrupt_at(log, 0)
        log.close(0)


def test_one_read_checks_no_more_than_so_many_batches() -> None:
    config = LogConfig(segment_bytes=1 << 30)
    disk = sim_disk()
    log = open_log(disk, config)
    for _ in range(checking.CHECKED_BATCHES_MAX + 10):
        append(log)
    log.close(0)
    log = open_log(disk, config, clean=True)
    data = log.read(0, 1 << 30, end_offset=log.log_end_offset).data
    assert len(list(iter_headers(data))) == checking.CHECKED_BATCHES_MAX
    rest = log.read(checking.CHECKED_BATCHES_MAX, 1 << 30, end_offset=log.log_end_offset).data
    assert len(list(iter_headers(rest))) == 10
    # Nobody checks what was checked: now all of it comes at once.
    assert len(log.read(0, 1 << 30, end_offset=log.log_end_offset).data) == len(data) + len(rest)
