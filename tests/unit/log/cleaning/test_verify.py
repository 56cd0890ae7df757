"""`tidelog verify` on directories with cleaned logs: gaps, empty batches and horizons are no damage, and damage is."""

from __future__ import annotations

from tests.unit.log.cleaning.helpers import COMPACT, clean, put, roll
from tests.unit.log.helpers import mark, sim_disk
from tests.unit.log.stopped import META, TOPIC_ID, change, damages, flip
from tidelog.log.directory import LogDirectory
from tidelog.log.partition_log import PartitionLog
from tidelog.sim.disk import SimDisk


def worked() -> tuple[SimDisk, LogDirectory, PartitionLog]:
    """Tombstones, transactions of both ends and emptied batches, cleaned twice; then some more."""
    disk = sim_disk()
    directory = LogDirectory.open(disk, "data")
    directory.format(META)
    log = directory.create_partition("t", 0, COMPACT, topic_id=TOPIC_ID, now_ms=0)
    for number in range(40):
        value = None if number % 9 == 8 else b"%d" % number * 8
        put(
            log,
            (b"%d" % (number % 6), value),
            (b"%d" % (number % 4), value),
            timestamp=1000 + 10 * (number % 13),
            producer_id=number % 4,
            epoch=number // 4,
            transactional=True,
        )
        mark(log, number % 4, commit=number % 3 > 0, epoch=number // 4)
        if number % 15 == 14:
            roll(log)
            log.cleaned_to = max(log.cleaned_to, 0)
            clean(disk, log, now_ms=2000 + number)
    log.flush()
    directory.checkpoint({("t", 0): log.log_end_offset})
    return disk, directory, log


def test_a_cleaned_log_is_in_order() -> None:
    disk, directory, log = worked()
    directory.close(0, high_watermarks={("t", 0): log.log_end_offset}, broker_epoch=5)
    assert damages(disk, deep=True) == []


def test_a_cleaned_log_of_a_killed_node_is_in_order() -> None:
    disk, _, _ = worked()
    assert damages(disk.crash(keep_page_cache=True), deep=True) == []


def test_damage_in_a_cleaned_log_is_found() -> None:
    disk, directory, log = worked()
    directory.close(0, high_watermarks={("t", 0): log.log_end_offset}, broker_epoch=5)
    change(disk, "data/t-0/00000000000000000000.log", flip(70))
    assert [finding.file for finding in damages(disk)] == ["data/t-0/00000000000000000000.log"]


def test_gaps_in_a_log_that_was_never_cleaned_are_damage() -> None:
    disk, directory, log = worked()
    log.cleaned_to = -1
    directory.close(0, high_watermarks={("t", 0): log.log_end_offset}, broker_epoch=5)
    assert any("are missing" in finding.what for finding in damages(disk))
