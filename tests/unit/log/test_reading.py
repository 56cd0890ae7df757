"""Reads that never wait: what is not in memory is brought, and the log may change before it is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.log.helpers import TINY, append, batch_of, open_log, read_batches, sim_disk
from tidelog.log.errors import LogError
from tidelog.log.partition_log import PartitionLog
from tidelog.log.reading import Brought, Read, WouldBlock, at_once
from tidelog.protocol.batch import read_header
from tidelog.sim.disk import SimDisk

T = TypeVar("T")


def cold_log(batches: int = 30) -> tuple[SimDisk, PartitionLog]:
    """A log that was opened again, on a disk with nothing in memory."""
    disk = sim_disk()
    log = open_log(disk)
    for number in range(batches):
        append(log, batch_of(1 + number % 3, timestamp=1000 + number))
    log.close(0)
    log = open_log(disk, clean=True)
    disk.faults.cold_reads = 1.0
    return disk, log


def bring_all(action: Callable[[Read], T], meanwhile: Callable[[], object] = lambda: None, step: int = 0) -> T:
    """Bring what is missing until the action is through; `meanwhile` happens while some of it is on its way."""
    brought = Brought()
    for number in range(200):
        try:
            return action(brought)
        except WouldBlock as missing:
            keep = brought.expect(missing)
            data = missing.file.read(missing.position, missing.length)
            if number == step:
                meanwhile()
            keep(bytes(data))
    raise AssertionError("no end of it")


def test_nothing_is_read_from_a_cold_disk_without_being_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, log = cold_log()
    expected = read_batches(log)
    _, log = cold_log()
    reads: list[str] = []
    monkeypatch.setattr(disk.open("data/t-0/00000000000000000000.log").__class__, "read", lambda *_: reads.append("x"))
    for batch in expected:
        with pytest.raises(WouldBlock):
            log.read(read_header(batch).base_offset, 1000, end_offset=log.log_end_offset, read=at_once)
    for timestamp in (0, 1010, 5000):
        with pytest.raises(WouldBlock):
            log.offset_for_timestamp(timestamp, end_offset=log.log_end_offset, read=at_once)
    with pytest.raises(WouldBlock):
        log.max_timestamp_offset(at_once)
    assert not reads


@settings(max_examples=60)
@given(st.integers(0, 1000), st.integers(1, 60), st.sampled_from([0.2, 0.7, 1.0]))
def test_what_is_brought_is_what_a_waiting_reader_gets(max_bytes: int, end: int, chance: float) -> None:
    disk, log = cold_log()
    disk.faults.cold_reads = chance
    end = min(end, log.log_end_offset)
    _, other = cold_log()
    for offset in range(end):
        wanted = other.read(offset, max_bytes, end_offset=end)
        assert bring_all(lambda read, at=offset: log.read(at, max_bytes, end_offset=end, read=read)) == wanted
    for timestamp in (0, 1010, 1029, 5000):
        found = bring_all(lambda read, at=timestamp: log.offset_for_timestamp(at, end_offset=end, read=read))
        assert found == other.offset_for_timestamp(timestamp, end_offset=end)
    assert bring_all(log.max_timestamp_offset) == other.max_timestamp_offset()


def rewrite(log: PartitionLog) -> None:
    """Others take the place of the batches from offset 5 on, in the same file, as after a change of leader."""
    log.truncate_to(5)
    for _ in range(20):
        append(log, batch_of(2, value=b"other"), leader_epoch=1)


def expire(log: PartitionLog) -> None:
    log.maybe_increment_log_start(log.segments[2].base_offset)
    assert log.delete_old_segments(0, log.log_end_offset)


def grow(log: PartitionLog) -> None:
    for _ in range(3):
        append(log)


@pytest.mark.parametrize("change", [rewrite, expire, grow, lambda log: log.truncate_fully_and_start_at(7)])
@pytest.mark.parametrize("offset", [0, 6, 11, 55])
@pytest.mark.parametrize("step", range(5))
def test_a_log_that_changes_meanwhile_is_read_as_it_is_then(
    change: Callable[[PartitionLog], None], offset: int, step: int
) -> None:
    disk, log = cold_log()

    def meanwhile() -> None:
        disk.faults.cold_reads = 0.0
        change(log)
        disk.faults.cold_reads = 1.0

    def outcome(read: Callable[[Callable[[Read], object]], object]) -> object:
        try:
            return read(lambda how: log.read(offset, 10_000, end_offset=log.log_end_offset, read=how))
        except LogError as error:
            return error.error_code

    found = outcome(lambda action: bring_all(action, meanwhile, step))
    assert found == outcome(bring_all)


def test_bytes_that_end_where_the_file_ended_are_not_the_end_of_a_file_that_has_grown() -> None:
    disk, log = cold_log()
    file = log.segments[-1].log
    brought = Brought()
    keep = brought.expect(WouldBlock(file, 0, 10_000))
    keep(bytes(file.read(0, 10_000)))
    assert len(brought(file, 0, 10_000)) == file.size()
    file.append([b"more"])
    with pytest.raises(WouldBlock):
        brought(file, 0, 10_000)
    disk.faults.cold_reads = 0.0
    assert bytes(brought(file, 0, 10_000)).endswith(b"more")


def test_an_index_that_could_not_be_looked_at_is_looked_at_again() -> None:
    """The check of its ends must not be skipped because the first try met a cold page."""
    disk, log = cold_log()
    path = f"data/t-0/{0:020d}.index"
    index = disk.open(path)
    content = index.read(0, index.size())
    index.truncate(0)
    index.append([content[:-8] + bytes(8)])
    offset = log.segments[1].base_offset - 1
    found = bring_all(lambda read: log.read(offset, 1000, end_offset=log.log_end_offset, read=read)).data
    assert read_header(found).last_offset == offset


def test_the_newest_batches_are_read_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, log = cold_log()
    disk.faults.cold_reads = 0.0
    result = append(log, batch_of(2))
    disk.faults.cold_reads = 1.0
    assert log.read(result.base_offset, 1 << 20, end_offset=log.log_end_offset, read=at_once).data
    assert TINY.segment_bytes == 600
