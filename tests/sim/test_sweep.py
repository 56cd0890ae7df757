"""A fault at each disk operation of a node's life, one after the other: ENOSPC, EIO, kill -9, a power cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.sweep import FAULTS, Fault, run_sweep
from tidelog.sim.loop import run

PARTS = 6
EVERY = {"full": 1, "error": 1, "power": 1, "kill": 3}
"""Every operation, or every third: a power cut is a kill and more."""


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_each_operation_loses_nothing(
    fault: Fault, part: int, record_property: Callable[[str, object], None]
) -> None:
    operations = run(run_sweep(0), 0)
    assert operations > 250, "the life is too short to hold every kind of write"
    numbers = range(1 + part * EVERY[fault], operations + 1, PARTS * EVERY[fault])
    for number in numbers:
        try:
            run(run_sweep(0, fault, number), 0)
        except BaseException as error:
            error.add_note(f"again: ./dev sim --workload {fault}-at --first {number} --seeds 1")
            raise
    record_property(f"seeds of {fault}-at", len(numbers))
