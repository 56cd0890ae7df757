"""How many seeds of each workload `./dev test` runs, and in which parts."""

from __future__ import annotations

import os

import pytest

COUNTS = {
    "log": 90,
    "power": 140,
    "torn": 30,
    "bad": 70,
    "full": 70,
    "slow": 40,
    "metadata": 80,
    "groups": 240,
    "transactions": 170,
    "late": 90,
    "compacted": 30,
}
"""How many seeds each workload gets; TIDELOG_SIM_SEEDS asks for more or fewer in all."""
TOTAL = int(os.environ.get("TIDELOG_SIM_SEEDS", sum(COUNTS.values())))
SLICE = 10


def slices(workload: str) -> list[range]:
    count = max(1, COUNTS[workload] * TOTAL // sum(COUNTS.values()))
    return [range(first, min(first + SLICE, count)) for first in range(0, count, SLICE)]


def seeds_of(*workloads: str) -> pytest.MarkDecorator:
    parts = [(workload, seeds) for workload in workloads for seeds in slices(workload)]
    return pytest.mark.parametrize(
        ("workload", "seeds"), parts, ids=[f"{workload}-{seeds}" for workload, seeds in parts]
    )
