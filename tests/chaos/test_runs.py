"""A short run of every workload: real clients in processes of their own, faults, and the checker's judgement.

`./dev chaos` runs them for as long as there is time. TIDELOG_CHAOS_SEED replays what a failure names, as far as real
processes can be replayed."""

from __future__ import annotations

import os
import random

import pytest

from tests.chaos.history import Poll, Send
from tests.chaos.run import run
from tools import apache

SECONDS = 8.0


@pytest.mark.timeout(400)
@pytest.mark.parametrize("workload", ["w2", "w3", "w4", "w5", "w6", "w7"])
def test_a_short_run(workload: str) -> None:
    seed = int(os.environ.get("TIDELOG_CHAOS_SEED", random.randrange(10**6)))
    print(f"again: TIDELOG_CHAOS_SEED={seed}")
    outcome = run(workload, seconds=SECONDS, seed=seed, java=False, quiet=True)
    assert outcome.ok, "\n".join(outcome.lines())
    assert outcome.faults["kill-node"] >= 1
    done = [op for op in outcome.history.ops if op.outcome == "ok"]
    assert sum(isinstance(action, Send) for op in done for action in op.actions) > 50, "the run proves little"
    assert sum(isinstance(action, Poll) for op in done for action in op.actions) > 50, "the run proves little"


@pytest.mark.java
@pytest.mark.timeout(400)
def test_a_short_run_with_transactions_of_both_versions() -> None:
    if missing := apache.why_not():
        pytest.skip(f"no Java clients: {missing}")
    seed = int(os.environ.get("TIDELOG_CHAOS_SEED", random.randrange(10**6)))
    print(f"again: TIDELOG_CHAOS_SEED={seed}")
    # Twice as long: the Java client may be stopped for 7 s, or killed and have to start again.
    outcome = run("w3", seconds=2 * SECONDS, seed=seed, java=True, quiet=True)
    assert outcome.ok, "\n".join(outcome.lines())
    by_java = [op for op in outcome.history.ops if "java" in op.process and op.outcome == "ok" and op.transactional]
    assert len(by_java) > 5, "the Java client did little"
