"""This very node under simulation: what was acknowledged is there, whatever kills it. A seed replays a failure:
`./dev sim --first SEED --seeds 1`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sim.metadata_workload import run_metadata
from tests.sim.workload import run_workload
from tidelog.sim.loop import run

SEEDS = int(os.environ.get("TIDELOG_SIM_SEEDS", "120"))
METADATA_SEEDS = SEEDS // 2
SLICE = 10


def slices(count: int) -> list[range]:
    return [range(first, min(first + SLICE, count)) for first in range(0, count, SLICE)]


@pytest.mark.parametrize("seeds", slices(SEEDS), ids=str)
def test_what_was_acknowledged_survives_every_kill(seeds: range) -> None:
    commits = 0
    for seed in seeds:
        history = run(run_workload(seed), seed)
        assert history.acknowledged, f"seed {seed} acknowledged nothing: the simulation proves nothing"
        commits += history.commits
    assert commits > 0


@pytest.mark.parametrize("seeds", slices(METADATA_SEEDS), ids=str)
def test_metadata_survives_power_cuts(seeds: range) -> None:
    for seed in seeds:
        run(run_metadata(seed), seed)


def test_a_seed_replays_to_the_same_history() -> None:
    first, second = run(run_workload(7), 7), run(run_workload(7), 7)
    assert first.seen == second.seen
    assert first.acknowledged == second.acknowledged


def digest(hash_seed: str) -> str:
    script = (
        "from tests.sim.workload import run_workload; from tidelog.sim.loop import run;"
        "h = run(run_workload(3), 3); print(sorted((str(k), sorted(v.items())) for k, v in h.seen.items()))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    return done.stdout


def test_a_seed_means_the_same_under_another_hash_seed() -> None:
    assert digest("1") == digest("2")
