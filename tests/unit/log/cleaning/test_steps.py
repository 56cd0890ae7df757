"""The steps of a cleaning: as large as they were ordered, and nothing is kept when it is over."""

from __future__ import annotations

import gc
import itertools
import weakref

import pytest

from tests.unit.log.cleaning.helpers import COMPACT, SEED, put, range_of, roll
from tests.unit.log.helpers import open_log, sim_disk
from tidelog.log.cleaning import job as jobs
from tidelog.log.cleaning.job import CleanJob, GroupCleaned, LogCleaned, Step, Worked
from tidelog.log.cleaning.keys import Keys
from tidelog.log.cleaning.ordering import clean_order
from tidelog.log.cleaning.swap import finish_now, swap_steps


def steps_of(step_bytes: int) -> tuple[list[Step], CleanJob]:
    disk = sim_disk()
    log = open_log(disk, COMPACT)
    for number in range(40):
        put(log, (b"%d" % (number % 30), b"x" * 50))
    roll(log)
    job = CleanJob(clean_order(log, range_of(log), now_ms=0, keys_max=99, seed=SEED, step_bytes=step_bytes), "pure")
    steps: list[Step] = []
    while not (steps and isinstance(steps[-1], LogCleaned)):
        steps.append(job.step(disk))
        if isinstance(step := steps[-1], GroupCleaned):
            finish_now(disk, log, swap_steps(disk, log, step.base_offsets, 0))
    return steps, job


def test_a_step_is_as_large_as_ordered_or_ends_with_a_group() -> None:
    (small, _), (large, _), (whole, _) = steps_of(1), steps_of(1000), steps_of(10**9)
    totals = set()
    for steps in (small, large, whole):
        worked = [step for step in steps if isinstance(step, Worked)]
        totals.add((sum(step.read_bytes for step in worked), sum(step.written_bytes for step in worked)))
        assert [step for step in steps if isinstance(step, GroupCleaned)] == [
            step for step in small if isinstance(step, GroupCleaned)
        ]
        assert isinstance(end := steps[-1], LogCleaned) and (end.read_bytes, end.written_bytes) in totals
    assert len(totals) == 1
    assert len(small) > len(large) > len(whole)
    for step, after in itertools.pairwise(large):
        if isinstance(step, Worked) and isinstance(after, Worked):
            assert sum(step) >= 1000
    # One for each group: the keys count to the first.
    assert [type(step) for step in whole[:-1]] == [Worked, GroupCleaned] * (len(whole) // 2)


def test_it_gives_way_between_reading_looking_and_writing() -> None:
    """With a thread that keeps its core until the next tick, whoever is ready waits for milliseconds."""
    disk = sim_disk()
    log = open_log(disk, COMPACT)
    for number in range(4):
        put(log, (b"%d" % number, b"x"))
    roll(log)
    job = CleanJob(clean_order(log, range_of(log), now_ms=0, keys_max=99, seed=SEED, step_bytes=1), "pure")
    turns: list[int] = []
    given = 0

    def give_way() -> None:
        nonlocal given
        given += 1

    while not isinstance(job.step(disk, give_way), GroupCleaned):
        turns.append(given)
        given = 0
    assert turns == [3, 4], (
        "the keys of a stretch: read, decoded, taken; what stays of it: settled, read, kept, written"
    )


def test_the_keys_are_let_go_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper process waits for its next job with the last one in hand."""
    made: list[weakref.ref[Keys]] = []

    class Watched(Keys):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)  # type: ignore[arg-type]
            made.append(weakref.ref(self))

    monkeypatch.setattr(jobs, "Keys", Watched)
    _, job = steps_of(1)
    gc.collect()
    assert job is not None and [ref() for ref in made] == [None]
