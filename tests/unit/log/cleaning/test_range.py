"""Which part of a log can be cleaned, and when it is time."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.log.cleaning.helpers import COMPACT, clean, put, range_of, roll
from tests.unit.log.helpers import open_log, sim_disk
from tidelog.log.config import LogConfig
from tidelog.log.partition_log import PartitionLog


def three_segments(config: LogConfig = COMPACT) -> PartitionLog:
    """From offsets 0, 2 and 4, times 1000, 2000 and 3000; the last one is active."""
    log = open_log(sim_disk(), config)
    for number in (1, 2, 3):
        for key in (b"a", b"b"):
            put(log, (key, b"x"), timestamp=1000 * number)
        if number < 3:
            roll(log)
    return log


def test_all_but_the_active_segment_is_dirty_at_first() -> None:
    log = three_segments()
    found = range_of(log)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 4)
    assert (found.clean_bytes, found.dirty_bytes) == (0, sum(segment.size for segment in log.segments[:2]))
    assert found.dirty_ratio == 1.0 and found.is_due(COMPACT)


def test_what_was_cleaned_is_not_dirty() -> None:
    log = three_segments()
    log.cleaned_to = 2
    found = range_of(log)
    assert (found.first_dirty_offset, found.dirty_ratio) == (2, 0.5)
    assert not found.is_due(replace(COMPACT, min_cleanable_dirty_ratio=0.5))
    assert found.is_due(replace(COMPACT, min_cleanable_dirty_ratio=0.49))
    log.cleaned_to = 4
    assert not range_of(log).is_due(COMPACT)


def test_a_place_that_the_log_does_not_have_is_not_believed() -> None:
    log = three_segments()
    for place in (-1, 7, 100):
        log.cleaned_to = place
        assert range_of(log).first_dirty_offset == 0
    log.maybe_increment_log_start(3)
    log.cleaned_to = 1
    assert range_of(log).first_dirty_offset == 3


def test_young_segments_are_left_alone() -> None:
    log = three_segments(replace(COMPACT, min_compaction_lag_ms=500))
    assert range_of(log, now_ms=2400).first_uncleanable_offset == 2
    assert range_of(log, now_ms=2500).first_uncleanable_offset == 4
    assert range_of(log, now_ms=1400).first_uncleanable_offset == 0
    assert not range_of(log, now_ms=1400).is_due(log.config)


def test_an_old_record_is_reason_enough() -> None:
    log = three_segments(replace(COMPACT, max_compaction_lag_ms=500, min_cleanable_dirty_ratio=1.0))
    assert not range_of(log, now_ms=1500).is_due(log.config)
    assert range_of(log, now_ms=1501).is_due(log.config)
    log.cleaned_to = 2
    assert not range_of(log, now_ms=2500).is_due(log.config)
    assert range_of(log, now_ms=2501).is_due(log.config)


def test_a_segment_with_an_open_transaction_is_left_alone() -> None:
    log = open_log(sim_disk(), COMPACT)
    put(log, (b"a", b"1"))
    roll(log)
    put(log, (b"a", b"2"))
    put(log, (b"a", b"3"), producer_id=1, transactional=True)
    roll(log)
    found = range_of(log)
    assert found.first_uncleanable_offset == 1
    assert found.dirty_bytes == log.segments[0].size


def test_nothing_is_due_without_a_second_segment() -> None:
    log = open_log(sim_disk(), COMPACT)
    put(log, (b"a", b"1"))
    assert not range_of(log).is_due(COMPACT)
    assert clean(log._disk, log) is None
