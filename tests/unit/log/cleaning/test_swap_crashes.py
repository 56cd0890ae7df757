"""A cleaning that is cut short at every single change of the disk: the next start finds the old segments or the new
ones, group by group in order, never a mix; and starting twice is starting once."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from tests.unit.log.cleaning.helpers import COMPACT, clean, committed, everything, put, roll, stable_offset
from tests.unit.log.helpers import DIRECTORY, mark, open_log, read_batches, tree
from tidelog.log.partition_log import PartitionLog
from tidelog.sim.disk import DiskFaults, SimDisk, SimulatedCrash

CUTS = 4
"""How often the power is cut at each point: chance decides what of the unsynced is kept."""


def filled(disk: SimDisk) -> PartitionLog:
    """Several groups of several segments; transactions across them, one aborted behind them all."""
    disk.make_dirs("data")
    disk.sync_dir("")
    log = open_log(disk, COMPACT)
    for number in range(24):
        producer = number % 2
        put(
            log,
            (b"%d" % (number % 5), None if number % 7 == 6 else b"%d" % number * 10),
            producer_id=producer,
            sequence=number // 2,
            transactional=True,
        )
        if number % 6 == 5:
            mark(log, 0, commit=number % 4 == 1)
            mark(log, 1, commit=number % 4 == 3)
        if number % 3 == 2:
            # The last of the segment, and none of it stays.
            put(log, (b"p", b"%d" % number))
            roll(log)
    put(log, (b"9", b"bad"), producer_id=0, sequence=12, transactional=True)
    roll(log)
    mark(log, 0, commit=False)
    put(log, (b"x", b"y"))
    log.flush()
    return log


def outcomes() -> tuple[list[list[bytes]], int, int, list[str]]:
    """The batches after each swap, the old ones first; the first and the last change that a cleaning makes, and what
    each is."""
    disk = SimDisk(Random(0))
    log = filled(disk)
    states = [read_batches(log)]
    first = disk.operations + 1
    disk.trace = []
    clean(disk, log, on_swapped=lambda: states.append(read_batches(log)))
    return states, first, disk.operations, disk.trace


STATES, FIRST, LAST, TRACE = outcomes()


def crashed_at(point: int, seed: int) -> tuple[SimDisk, int, list[object]]:
    disk = SimDisk(Random(seed))
    log = filled(disk)
    end, seen = log.recovery_point, committed(log)
    disk.faults = DiskFaults(crash_at=point)
    with pytest.raises(SimulatedCrash):
        clean(disk, log)
    return disk, end, list(seen)


def test_a_cleaning_has_several_groups_and_changes_something() -> None:
    assert len(STATES) >= 3
    assert all(before != after for before, after in itertools.pairwise(STATES))


@pytest.mark.parametrize("point", range(FIRST, LAST + 1))
def test_a_kill_leaves_the_old_or_the_new(point: int) -> None:
    disk, end, seen = crashed_at(point, 0)
    check(disk.crash(keep_page_cache=True), end, seen)


@pytest.mark.parametrize("point", range(FIRST, LAST + 1))
def test_a_power_cut_leaves_the_old_or_the_new(point: int) -> None:
    for seed in range(CUTS):
        disk, end, seen = crashed_at(point, seed)
        check(disk.crash(keep_page_cache=False), end, seen)


SWAP_POINTS = [FIRST + number for number, what in enumerate(TRACE) if what.startswith(("rename", "sync"))]


@pytest.mark.parametrize("point", SWAP_POINTS)
def test_a_power_cut_while_that_is_put_in_order(point: int) -> None:
    """The start after a crash is cut short as well, at each of its own changes."""
    stopped, end, seen = crashed_at(point, 0)
    for is_killed in (True, False):
        for more in range(1, 100):
            disk = stopped.crash(keep_page_cache=is_killed)
            disk.faults = DiskFaults(crash_at=disk.operations + more)
            try:
                open_log(disk, COMPACT, recovery_point=end)
            except SimulatedCrash:
                log = open_log(disk.crash(keep_page_cache=False), COMPACT, recovery_point=end)
                assert read_batches(log) in STATES, "a mix"
                assert _last(committed(log)) == _last(seen)
            else:
                break


def check(disk: SimDisk, end: int, seen: list[object]) -> None:
    log = open_log(disk, COMPACT, recovery_point=end)
    found = read_batches(log)
    assert found in STATES, "a mix"
    names = list(tree(disk, DIRECTORY))
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert stable_offset(log) == log.log_end_offset
    # What is aborted stays so, and no key has another value than before.
    kept = committed(log)
    assert _last(kept) == _last(seen)
    assert {one.offset for one in kept} <= {one.offset for one in seen}  # type: ignore[attr-defined]
    log.flush()
    again = open_log(disk.crash(keep_page_cache=False), COMPACT, recovery_point=end)
    assert read_batches(again) == found
    assert committed(again) == kept
    # And the next cleaning brings it to where the one that was cut short would have.
    clean(again._disk, again)
    assert everything(again) == _everything_of(STATES[-1])


def _last(seen: list) -> dict[bytes, bytes | None]:  # type: ignore[type-arg]
    return {key: value for _, key, value in seen}


def _everything_of(batches: list[bytes]) -> list[object]:
    from tests.unit.log.cleaning.helpers import Seen
    from tidelog.protocol.batch import iter_records, read_header

    return [
        Seen(record.offset, record.key, record.value)  # type: ignore[arg-type]
        for batch in batches
        if not read_header(batch).is_control
        for record in iter_records(batch)
    ]
