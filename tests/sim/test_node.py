"""This very node under simulation: what was acknowledged is there, whatever kills it or ails its disk. A seed replays
a failure: `./dev sim --workload NAME --first SEED --seeds 1`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from tests.sim.metadata_workload import run_metadata
from tests.sim.seeds import seeds_of
from tests.sim.workload import WORKLOADS, run_workload
from tidelog.sim.loop import run


@seeds_of("log", "power", "torn", "slow", "bad", "full")
def test_what_was_acknowledged_or_read_survives(
    workload: str, seeds: range, record_property: Callable[[str, object], None]
) -> None:
    acknowledged = commits = reads = 0
    errors: set[str] = set()
    for seed in seeds:
        history = run(WORKLOADS[workload](seed), seed)
        acknowledged += len(history.acknowledged)
        commits += history.commits
        reads += history.reads
        errors |= history.errors.keys()
    assert acknowledged and commits and reads, "the simulation proves nothing"
    assert "KAFKA_STORAGE_ERROR" in errors or workload != "full"
    record_property(f"seeds of {workload}", len(seeds))


@seeds_of("metadata")
def test_metadata_survives_power_cuts(
    workload: str, seeds: range, record_property: Callable[[str, object], None]
) -> None:
    for seed in seeds:
        run(run_metadata(seed), seed)
    record_property(f"seeds of {workload}", len(seeds))


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
