"""Offsets by time: the exact record, in any codec, however the times are ordered, and the newest of all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.log.helpers import append, open_log, sim_disk
from tidelog.log.config import LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.compression import Codec

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)


def batch_at(*timestamps: int, codec: Codec = Codec.NONE) -> bytearray:
    return build_batch([RecordInput(b"k", b"v" * 20, timestamp) for timestamp in timestamps], codec=codec)


def log_at(*batches: tuple[int, ...], codec: Codec = Codec.NONE) -> PartitionLog:
    log = open_log(sim_disk(), CONFIG)
    for timestamps in batches:
        append(log, batch_at(*timestamps, codec=codec))
    return log


def at(log: PartitionLog, timestamp: int, end: int | None = None) -> tuple[int, int] | None:
    found = log.offset_for_timestamp(timestamp, end_offset=log.log_end_offset if end is None else end)
    return found and (found.timestamp, found.offset)


@pytest.mark.parametrize("codec", list(Codec))
def test_the_exact_record_is_found_inside_a_batch(codec: Codec) -> None:
    log = log_at((10, 20, 30), (40, 50, 60), codec=codec)
    found = {timestamp: at(log, timestamp) for timestamp in (0, 10, 11, 30, 31, 50, 55, 60, 61)}
    assert found == {
        0: (10, 0),
        10: (10, 0),
        11: (20, 1),
        30: (30, 2),
        31: (40, 3),
        50: (50, 4),
        55: (60, 5),
        60: (60, 5),
        61: None,
    }


def test_the_first_record_that_is_new_enough_by_offset_not_by_time() -> None:
    log = log_at((100, 5, 300), (200, 50), (250, 400))
    assert at(log, 101) == (300, 2)
    assert at(log, 300) == (300, 2)
    assert at(log, 301) == (400, 6)


def test_the_leader_epoch_of_the_batch_comes_with_it() -> None:
    log = open_log(sim_disk(), CONFIG)
    append(log, batch_at(10), leader_epoch=2)
    append(log, batch_at(20), leader_epoch=5)
    found = log.offset_for_timestamp(15, end_offset=2)
    assert found == (20, 1, 5)


def test_nothing_at_or_behind_the_end_offset() -> None:
    log = log_at((10, 20), (30, 40))
    assert at(log, 30, end=2) is None
    assert at(log, 20, end=2) == (20, 1)
    assert at(log, 20, end=1) is None  # in the middle of a batch


def test_deleted_records_are_not_found() -> None:
    log = log_at((10, 90, 20), (30,), (95,))
    log.maybe_increment_log_start(2)
    assert at(log, 0) == (20, 2)
    assert at(log, 50) == (95, 4)  # 90 was the only one of its batch


def test_an_empty_log_and_one_without_times() -> None:
    assert at(log_at(), 0) is None
    assert log_at().max_timestamp_offset() is None
    log = log_at((-1,), (-1,))
    assert at(log, 0) is None
    assert log.max_timestamp_offset() is None


@pytest.mark.parametrize("codec", list(Codec))
def test_the_newest_record_is_the_first_with_the_largest_time(codec: Codec) -> None:
    log = log_at((10, 70, 20), (70, 30), (5,), codec=codec)
    newest = log.max_timestamp_offset()
    assert newest is not None
    assert newest[:2] == (70, 1)


def test_the_newest_record_may_lie_in_an_older_segment() -> None:
    log = log_at(*((number,) for number in (1, 2, 99, *range(3, 30))))
    assert len(log.segments) > 3
    newest = log.max_timestamp_offset()
    assert newest is not None
    assert newest[:2] == (99, 2)


TIMES = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4).map(tuple), max_size=25)


@given(TIMES, st.sampled_from((Codec.NONE, Codec.LZ4)), st.data())
def test_as_a_list_would_answer(batches: list[tuple[int, ...]], codec: Codec, data: st.DataObject) -> None:
    disk = sim_disk()
    log = open_log(disk, CONFIG)
    for timestamps in batches:
        append(log, batch_at(*timestamps, codec=codec))
    how = data.draw(st.sampled_from(("as it is", "clean", "unclean")))
    if how != "as it is":
        log.close(0)
        log = open_log(disk, CONFIG, clean=how == "clean")
    records = [(time, offset) for offset, time in enumerate(time for batch in batches for time in batch)]
    for timestamp in range(0, 42, 3):
        assert at(log, timestamp) == next((record for record in records if record[0] >= timestamp), None)
    newest = log.max_timestamp_offset()
    expected = max(records, key=lambda record: (record[0], -record[1]), default=None)
    assert (newest and newest[:2]) == expected
