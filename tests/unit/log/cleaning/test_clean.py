"""A log is cleaned: what stays, what goes, and what a reader and the next start find."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.unit.log.cleaning import helpers
from tests.unit.log.cleaning.helpers import (
    COMPACT,
    RETENTION_MS,
    Seen,
    clean,
    clean_all,
    committed,
    everything,
    headers,
    put,
    range_of,
    roll,
    values,
)
from tests.unit.log.helpers import DIRECTORY, batch_of, mark, open_log, read_batches, sim_disk, tree
from tests.unit.log.stopped import change, flip
from tidelog.log.cleaning.errors import UncleanableError
from tidelog.log.cleaning.job import GroupCleaned
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.batch import DELETE_HORIZON, iter_records, read_header
from tidelog.protocol.compression import Codec
from tidelog.sim.disk import SimDisk


@pytest.fixture(autouse=True, params=["pure", "native"])
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "native":
        pytest.importorskip("numba")
    monkeypatch.setattr(helpers, "TWIN", request.param)


def opened() -> tuple[SimDisk, PartitionLog]:
    disk = sim_disk()
    return disk, open_log(disk, COMPACT)


def test_the_last_record_of_a_key_stays_where_it_was() -> None:
    disk, log = opened()
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    put(log, (b"c", b"1"))
    roll(log)
    put(log, (b"b", b"2"))
    roll(log)
    assert clean(disk, log) is not None
    assert everything(log) == [Seen(2, b"a", b"2"), Seen(3, b"c", b"1"), Seen(4, b"b", b"2")]
    first = headers(log)[0]
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 2, 1)


def test_the_active_segment_is_left_alone() -> None:
    disk, log = opened()
    put(log, (b"a", b"1"))
    roll(log)
    put(log, (b"a", b"2"))
    put(log, (b"a", b"3"))
    assert clean(disk, log) is not None
    assert [seen.offset for seen in everything(log)] == [0, 1, 2]


def test_segments_become_one_as_far_as_they_fit() -> None:
    disk, log = opened()
    for number in range(40):
        put(log, (b"%d" % number, b"x" * 50))
    roll(log)
    before = log.segments
    clean(disk, log)
    assert [segment.base_offset for segment in log.segments] == [segment.base_offset for segment in before]
    put(log, *[(b"%d" % number, b"") for number in range(40)])
    # Their sizes are measured before: what has become small is put together by the next one.
    for key in (b"x", b"y"):
        put(log, (key, b"1"))
        roll(log)
        clean(disk, log)
    assert len(log.segments) <= 4 < len(before)
    assert all(segment.size <= COMPACT.segment_bytes for segment in log.segments)
    assert len(everything(log)) == 42


def test_a_tombstone_stays_until_its_horizon() -> None:
    disk, log = opened()
    put(log, (b"a", b"1"))
    put(log, (b"a", None), timestamp=1500)
    put(log, (b"b", b"1"))
    roll(log)
    assert clean(disk, log, now_ms=2000) is not None
    assert everything(log) == [Seen(1, b"a", None), Seen(2, b"b", b"1")]
    [header, _] = headers(log)[:2]
    assert header.attributes & DELETE_HORIZON and header.base_timestamp == 2000 + RETENTION_MS
    batch = read_batches(log)[0]
    assert next(iter_records(batch)).timestamp == 1500 == header.max_timestamp
    for now_ms, is_there in ((2000 + RETENTION_MS - 1, True), (2000 + RETENTION_MS, False)):
        put(log, (b"c", b"x"))
        roll(log)
        clean(disk, log, now_ms=now_ms)
        assert (Seen(1, b"a", None) in everything(log)) == is_there


def test_a_horizon_that_is_set_is_not_set_again() -> None:
    disk, log = opened()
    put(log, (b"a", None), (b"b", None), timestamp=1500)
    roll(log)
    clean(disk, log, now_ms=2000)
    put(log, (b"b", b"1"))
    roll(log)
    clean(disk, log, now_ms=2050)
    header = headers(log)[0]
    assert (header.base_timestamp, header.record_count, header.last_offset) == (2000 + RETENTION_MS, 1, 1)
    assert [record.timestamp for record in iter_records(read_batches(log)[0])] == [1500]


@pytest.mark.parametrize("codec", list(Codec))
def test_the_compression_of_a_batch_stays(codec: Codec) -> None:
    disk, log = opened()
    put(log, *[(b"%d" % (number % 3), b"value %d" % number) for number in range(9)], codec=codec)
    roll(log)
    clean(disk, log)
    [header] = headers(log)
    assert (header.codec, header.record_count, header.last_offset) == (codec, 3, 8)
    assert everything(log) == [Seen(n, b"%d" % (n % 3), b"value %d" % n) for n in (6, 7, 8)]


def test_what_is_newest_decides_the_time_of_a_batch() -> None:
    disk, log = opened()
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), timestamp=1000)
    put(log, (b"c", b"2"), timestamp=500)
    roll(log)
    clean(disk, log)
    assert [header.max_timestamp for header in headers(log)] == [1001, 500]
    assert log.segments[0].max_timestamp == 1001


def test_keys_that_do_not_fit_take_several_cleanings() -> None:
    def filled() -> tuple[SimDisk, PartitionLog]:
        disk, log = opened()
        for number in range(60):
            put(log, (b"%d" % (number * 7 % 20), b"%d" % number))
        roll(log)
        return disk, log

    once, many = filled(), filled()
    assert clean_all(*once) == 1
    assert clean_all(*many, keys_max=3) > 3
    assert everything(once[1]) == everything(many[1])
    assert len(everything(once[1])) == 20


def test_a_batch_with_more_keys_than_fit_is_cleaned_nevertheless() -> None:
    disk, log = opened()
    put(log, *[(b"%d" % number, b"1") for number in range(10)])
    put(log, *[(b"%d" % number, b"2") for number in range(10)])
    roll(log)
    clean_all(disk, log, keys_max=2)
    assert [seen.offset for seen in everything(log)] == list(range(10, 20))


# Transactions


def test_aborted_data_goes_and_its_marker_follows_later() -> None:
    disk, log = opened()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"bad"), producer_id=7, transactional=True)
    mark(log, 7, commit=False)
    put(log, (b"b", b"good"), producer_id=7, sequence=1, transactional=True)
    mark(log, 7, commit=True)
    roll(log)

    def kinds() -> list[int]:
        return [header.base_offset for header in headers(log) if header.is_control]

    clean(disk, log, now_ms=2000)
    assert everything(log) == [Seen(0, b"a", b"1"), Seen(3, b"b", b"good")]
    assert kinds() == [2, 4]
    assert log.aborted_between(0, 5) == [(7, 1)]
    for now_ms, left in ((3000, [2, 4]), (3000 + RETENTION_MS, [4])):
        # In the first of these nothing is left of it: from then on its horizon counts.
        put(log, (b"c", b"x"))
        roll(log)
        clean(disk, log, now_ms=now_ms)
        assert kinds() == left
        assert log.aborted_between(0, 5) == []
        assert values(committed(log)) == {b"a": b"1", b"b": b"good", b"c": b"x"}


def test_a_commit_marker_stays_as_long_as_its_data() -> None:
    disk, log = opened()
    put(log, (b"a", b"1"), producer_id=7, transactional=True)
    mark(log, 7, commit=True, epoch=1)
    log.producers.expire(10**15, 0)
    roll(log)
    for now_ms in (2000, 4000, 6000):
        put(log, (b"b", b"x"))
        roll(log)
        clean(disk, log, now_ms=now_ms)
        assert [header.base_offset for header in headers(log) if header.is_control] == [1]
    put(log, (b"a", b"2"))
    for now_ms in (8000, 9000, 10_000):
        put(log, (b"b", b"x"))
        roll(log)
        clean(disk, log, now_ms=now_ms)
    assert [header for header in headers(log) if header.is_control] == []


def test_an_open_transaction_takes_no_ones_place() -> None:
    disk, log = opened()
    put(log, (b"a", b"1"))
    roll(log)
    put(log, (b"a", b"2"), producer_id=7, transactional=True)
    roll(log)
    put(log, (b"c", b"1"))
    roll(log)
    assert range_of(log).first_uncleanable_offset == 1
    clean(disk, log)
    assert [seen.offset for seen in everything(log)] == [0, 1, 2]
    mark(log, 7, commit=False)
    roll(log)
    clean(disk, log)
    assert [seen.offset for seen in everything(log)] == [0, 2]


def test_data_whose_abort_stands_in_a_later_segment_goes() -> None:
    disk, log = opened()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"bad"), producer_id=7, transactional=True)
    roll(log)
    mark(log, 7, commit=False)
    clean(disk, log)
    assert everything(log) == [Seen(0, b"a", b"1")]
    assert committed(log) == everything(log)


# Producers


def test_the_last_batch_of_a_producer_stays_without_its_records() -> None:
    disk, log = opened()
    put(log, (b"a", b"1"), (b"b", b"1"), producer_id=7, sequence=40)
    put(log, (b"a", b"2"), (b"b", b"2"))
    roll(log)
    clean(disk, log)
    [emptied, _] = headers(log)
    assert (emptied.record_count, emptied.base_sequence, emptied.last_sequence) == (0, 40, 41)
    assert (emptied.base_offset, emptied.last_offset, emptied.max_timestamp) == (0, 1, 1001)
    log.flush()
    log.close_files()
    for name in tree(disk, DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(name)
    again = open_log(disk, COMPACT)
    state = again.producers.get(7)
    assert state is not None and state.batches[-1].last_sequence == 41


def test_the_last_batch_of_a_producer_that_is_forgotten_goes() -> None:
    disk, log = opened()
    put(log, (b"a", b"1"), producer_id=7)
    put(log, (b"a", b"2"))
    roll(log)
    log.producers.expire(10**15, 0)
    clean(disk, log)
    assert [header.base_offset for header in headers(log)] == [1]


# Files


def test_the_end_of_a_segment_shows_although_its_records_are_gone() -> None:
    disk, log = opened()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    roll(log)
    put(log, (b"a", b"3"))
    roll(log)
    # Of two groups, because the second does not fit to the first.
    log.config = replace(COMPACT, segment_bytes=log.segments[0].size)
    clean(disk, log)
    assert [(header.base_offset, header.record_count) for header in headers(log)] == [(1, 0), (2, 1)]


def test_a_damaged_batch_ends_the_cleaning_and_nothing_has_changed() -> None:
    disk, log = opened()
    for number in range(6):
        put(log, (b"a", b"%d" % number * 20))
    roll(log)
    change(disk, f"{DIRECTORY}/00000000000000000000.log", flip(80))
    before = {name: data for name, data in tree(disk, DIRECTORY).items() if not name.endswith(".cleaned")}
    with pytest.raises(UncleanableError, match="damaged at position 0"):
        clean(disk, log)
    assert before.items() <= tree(disk, DIRECTORY).items()


def test_who_reads_an_old_segment_goes_on() -> None:
    async def scene() -> None:
        disk, log = opened()
        put(log, (b"a", b"1"))
        put(log, (b"a", b"2"))
        roll(log)
        old = log.segments[0].log
        content = old.read(0, old.size())
        reading = disk.read_later(old, 0, old.size())
        clean(disk, log)
        assert await reading == content
        assert everything(log) == [Seen(1, b"a", b"2")]

    asyncio.run(scene())


def test_a_start_finds_what_was_there() -> None:
    disk, log = opened()
    for number in range(30):
        put(
            log,
            (b"%d" % (number % 4), None if number % 5 == 4 else b"%d" % number),
            producer_id=number % 3,
            epoch=number,
        )
    roll(log)
    clean(disk, log)
    put(log, (b"x", b"y"))
    found = read_batches(log)
    end = log.flush()
    log.close(0)
    again = open_log(disk, COMPACT, clean=True, recovery_point=end)
    assert read_batches(again) == found
    again.close_files()
    killed = open_log(disk.crash(keep_page_cache=True), COMPACT)
    assert read_batches(killed) == found


def test_old_files_go_when_their_delay_is_over() -> None:
    disk, log = opened()
    put(log, (b"a", b"1"))
    roll(log)
    clean(disk, log, now_ms=2000)
    deleted = [name for name in tree(disk, DIRECTORY) if name.endswith(".deleted")]
    assert len(deleted) >= 3
    log.remove_due_files(2000 + COMPACT.file_delete_delay_ms)
    assert not [name for name in tree(disk, DIRECTORY) if name.endswith(".deleted")]


def test_a_truncation_before_the_swap_gives_it_up() -> None:
    from tests.unit.log.cleaning.helpers import SEED
    from tidelog.log.cleaning.job import CleanJob
    from tidelog.log.cleaning.ordering import clean_order
    from tidelog.log.cleaning.swap import SwapGivenUp, finish_now, swap_steps

    disk, log = opened()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    roll(log)
    job = CleanJob(clean_order(log, range_of(log), now_ms=0, keys_max=9, seed=SEED))
    while not isinstance(step := job.step(disk), GroupCleaned):
        pass
    log.is_cleaning = True
    steps = swap_steps(disk, log, step.base_offsets, 0)
    next(steps)
    log.truncate_to(1)
    with pytest.raises(SwapGivenUp):
        finish_now(disk, log, steps)
    assert everything(log) == [Seen(0, b"a", b"1")]
    assert not [name for name in tree(disk, DIRECTORY) if name.endswith((".swap", ".cleaned"))]


def test_append_time_stays_that_of_the_batch() -> None:
    from tidelog.protocol.batch import set_append_time

    disk, log = opened()
    batch = batch_of(1, timestamp=10)
    header = set_append_time(batch, read_header(batch), 1700)
    log.append(batch, header, leader_epoch=0, now_ms=0)
    put(log, (b"gone", b"1"), (b"t", None))
    put(log, (b"gone", b"2"))
    roll(log)
    clean(disk, log)
    assert next(iter_records(read_batches(log)[0])).timestamp == 1700
