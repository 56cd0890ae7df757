"""A data directory that is crashed at every single change it makes: what was flushed is there, the rest is a valid
prefix, and recovering twice is recovering once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest

from tests.unit.log.helpers import batch_of, read_batches, tree
from tidelog.log.config import LogConfig
from tidelog.log.directory import LogDirectory
from tidelog.log.meta_properties import MetaProperties
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.batch import assign_offsets, crc_is_valid, iter_headers, read_header
from tidelog.sim.disk import DiskFaults, SimDisk, SimulatedCrash

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=150, file_delete_delay_ms=1000, retention_ms=10_000)
PATH = "data"
META = MetaProperties("cluster", 1, bytes(range(16)))
TOPIC_ID = bytes(range(1, 17))


class Run:
    """The script, and what a reader was promised while it ran."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.formatted = False
        self.created = False
        self.written: list[bytes] = []
        """Every batch that was appended, also those that a truncation took."""
        self.flushed: list[bytes] = []
        """What must be there: appended, synced, not truncated, not expired."""
        self.gone: list[bytes] = []
        self.log_start = 0
        self.sequence = 0

    def play(self) -> None:
        directory = LogDirectory.open(self.disk, PATH)
        directory.format(META)
        self.formatted = True
        log = directory.create_partition("t", 0, CONFIG, topic_id=TOPIC_ID, now_ms=0)
        self.append(log, 1, timestamp=100)
        self.flush(log)
        self.created = True
        for number in range(9):
            self.append(log, 1 + number % 3, timestamp=200 + number)
        self.flush(log)
        directory.checkpoint({("t", 0): log.recovery_point})
        self.append(log, 2, timestamp=300)
        self.truncate(directory, log, 12)
        self.append(log, 3, timestamp=400, epoch=1)
        self.append(log, 1, timestamp=500, epoch=1, producer_id=9)
        self.flush(log)
        self.expire(directory, log)
        for path in directory.take_due(20_000):
            self.disk.remove_tree(path)
        log.remove_due_files(20_000)
        self.append(log, 2, timestamp=20_000, epoch=1)
        directory.close(20_000, high_watermarks={("t", 0): log.log_end_offset}, broker_epoch=3)
        self.flushed = [batch for batch in self.written if batch not in self.gone]

        directory = LogDirectory.open(self.disk, PATH)
        directory.load(lambda _: CONFIG, 20_000)
        log = directory.partitions["t", 0]
        for number in range(4):
            self.append(log, 1, timestamp=20_100 + number, epoch=2)
        self.flush(log)
        directory.checkpoint({("t", 0): log.recovery_point})

    def append(self, log: PartitionLog, count: int, *, timestamp: int, epoch: int = 0, producer_id: int = 7) -> None:
        sequence = 0 if producer_id != 7 else self.sequence
        batch = batch_of(count, timestamp=timestamp, producer_id=producer_id, sequence=sequence, value=b"v" * 60)
        if producer_id == 7:
            self.sequence += count
        header = read_header(batch)
        assign_offsets(batch, log.log_end_offset, epoch)
        self.written.append(bytes(batch))
        log.append(batch, header, leader_epoch=epoch, now_ms=timestamp)

    def flush(self, log: PartitionLog) -> None:
        log.flush()
        self.flushed = [batch for batch in self.written if batch not in self.gone]

    def truncate(self, directory: LogDirectory, log: PartitionLog, offset: int) -> None:
        gone = [batch for batch in self.written if read_header(batch).last_offset >= offset]
        self.gone += gone
        self.flushed = [batch for batch in self.flushed if batch not in gone]
        directory.truncate_to(log, offset)
        self.sequence = sum(read_header(batch).record_count for batch in self.written if batch not in self.gone)

    def expire(self, directory: LogDirectory, log: PartitionLog) -> None:
        """From here on the first segment may be gone; whether it is, is for the crash to decide."""
        first, second = log.segments[:2]
        self.log_start = second.base_offset
        self.gone += [batch for batch in self.written if read_header(batch).base_offset < self.log_start]
        self.flushed = [batch for batch in self.flushed if batch not in self.gone]
        now_ms = first.max_timestamp + CONFIG.retention_ms + 1
        directory.checkpoint({("t", 0): log.log_end_offset})
        removed = log.delete_old_segments(now_ms, log.log_end_offset)
        assert [removal.base_offset for removal in removed] == [0]


def operations_of_the_script() -> int:
    disk = SimDisk(Random(1))
    Run(disk).play()
    return disk.operations


def crash(number: int, seed: int, *, keep_page_cache: bool) -> tuple[Run, SimDisk]:
    disk = SimDisk(Random(seed), DiskFaults(crash_at=number))
    run = Run(disk)
    with pytest.raises(SimulatedCrash):
        run.play()
    return run, disk.crash(keep_page_cache=keep_page_cache)


def recover(disk: SimDisk) -> tuple[LogDirectory, PartitionLog | None]:
    directory = LogDirectory.open(disk, PATH)
    directory.load(lambda _: CONFIG, 20_000)
    return directory, directory.partitions.get(("t", 0))


def check(run: Run, directory: LogDirectory, log: PartitionLog | None) -> None:
    if run.formatted:
        assert directory.meta == META
    if log is None:
        assert not run.created, "a partition with flushed records is gone"
        return
    if run.created:
        assert log.topic_id == TOPIC_ID
    found = read_batches(log)
    for batch in found:
        assert crc_is_valid(batch, read_header(batch))
        assert batch in run.written, "a batch that nobody wrote"
    for batch in run.flushed:
        if read_header(batch).base_offset >= run.log_start:
            assert batch in found, f"the flushed batch at {read_header(batch).base_offset} is lost"
    # What had expired may come back with a rename that a power cut undid; it must be readable, no more.
    found = [batch for batch in found if read_header(batch).base_offset >= run.log_start]
    behind = [read_header(batch) for batch in found]
    for before, after in pairwise(behind):
        assert after.base_offset == before.next_offset
        assert after.leader_epoch >= before.leader_epoch
    check_beside(log, found)


def check_beside(log: PartitionLog, found: list[bytes]) -> None:
    """Epochs and producers agree with the batches."""
    last_of: dict[int, int] = {}
    for batch in found:
        header = read_header(batch)
        assert log.leader_epochs.epoch_for_offset(header.base_offset) == header.leader_epoch
        last_of[header.producer_id] = header.last_sequence
    for producer_id, sequence in last_of.items():
        state = log.producers.get(producer_id)
        assert state is not None
        assert state.batches[-1].last_sequence == sequence
    for batch in found:
        header = read_header(batch)
        assert log.offset_for_timestamp(header.max_timestamp, end_offset=log.log_end_offset) is not None


def found_on(disk: SimDisk) -> dict[str, bytes]:
    """What lies there, without what is made from the log: which snapshots a start needs depends on how far the log was
    safe, and the indexes of the active segment are in memory."""
    made = (".snapshot", ".index", ".timeindex")
    return {path: data for path, data in tree(disk, PATH).items() if data and not path.endswith(made)}


def sequences(log: PartitionLog) -> dict[int, int]:
    return {producer_id: state.batches[-1].last_sequence for producer_id, state in log.producers.items()}


def cases() -> Iterator[tuple[int, int, bool]]:
    for number in range(1, operations_of_the_script() + 1):
        yield number, number, True
        yield number, number, False
        yield number, number + 10_000, False
    # An epoch whose file survived while its batches were lost to those that they had replaced.
    yield 123, 3123, False
    yield 128, 8128, False


def test_a_crash_at_every_change_keeps_what_was_flushed() -> None:
    for number, seed, keep_page_cache in cases():
        run, disk = crash(number, seed, keep_page_cache=keep_page_cache)
        check(run, *recover(disk))


def test_recovering_twice_is_recovering_once() -> None:
    for number, seed, keep_page_cache in cases():
        if number % 3:
            continue
        _, disk = crash(number, seed, keep_page_cache=keep_page_cache)
        directory, log = recover(disk)
        if directory.was_clean or log is None:
            continue
        once = found_on(disk), sequences(log), read_batches(log)
        again = disk.crash(keep_page_cache=True)
        _, log = recover(again)
        assert log is not None
        assert (found_on(again), sequences(log), read_batches(log)) == once


def test_a_crash_within_the_recovery_keeps_what_was_flushed() -> None:
    for number, seed, keep_page_cache in cases():
        if number % 10:
            continue
        for step in range(1, 40, 3):
            run, disk = crash(number, seed, keep_page_cache=keep_page_cache)
            disk.faults.crash_at = step
            try:
                recover(disk)
            except SimulatedCrash:
                check(run, *recover(disk.crash(keep_page_cache=False)))
            else:
                break


def test_a_log_that_goes_on_after_a_crash_has_no_offset_twice() -> None:
    for number, seed, keep_page_cache in cases():
        if number % 5:
            continue
        _, disk = crash(number, seed, keep_page_cache=keep_page_cache)
        directory, log = recover(disk)
        if log is None:
            continue
        end = log.log_end_offset
        batch = batch_of(3, timestamp=30_000)
        log.append(batch, read_header(batch), leader_epoch=9, now_ms=30_000)
        assert list(iter_headers(log.read(end, 10_000, end_offset=end + 3).data))[-1][1].base_offset == end
        directory.close(30_000, high_watermarks={})
        directory, log = recover(disk)
        assert directory.was_clean
        assert log is not None
        assert log.log_end_offset == end + 3
