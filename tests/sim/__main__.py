"""As many seeds of the simulation as there is time for."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from typing import Any

from tests.sim.groups_workload import run_groups
from tests.sim.metadata_workload import run_metadata
from tests.sim.sweep import FAULTS, run_sweep
from tests.sim.transactions_workload import run_compacted, run_late_requests, run_transactions
from tests.sim.workload import WORKLOADS as PLANS
from tidelog.sim.loop import run

WORKLOADS: dict[str, Callable[[int], Coroutine[Any, Any, object]]] = {
    **PLANS,
    "metadata": run_metadata,
    "groups": run_groups,
    "transactions": run_transactions,
    "late": run_late_requests,
    "compacted": run_compacted,
    # Their seeds are the numbers of the disk operations.
    **{f"{fault}-at": partial(run_sweep, 0, fault) for fault in FAULTS},
}


def run_seed(workload: str, seed: int) -> str | None:
    logging.disable(logging.CRITICAL)
    try:
        run(WORKLOADS[workload](seed), seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--first", type=int, default=0, help="the first one (0)")
    parser.add_argument("--workload", choices=[*WORKLOADS, "all"], default="all")
    args = parser.parse_args()
    chosen = list(WORKLOADS) if args.workload == "all" else [args.workload]
    failures = 0
    started_s = time.monotonic()
    with ProcessPoolExecutor() as pool:
        jobs = {
            pool.submit(run_seed, name, args.first + n): (name, args.first + n)
            for n in range(args.seeds)
            for name in chosen
        }
        for done, job in enumerate(as_completed(jobs), 1):
            error = job.result()
            if error is not None:
                failures += 1
                name, seed = jobs[job]
                print(f"\n{name} seed {seed}: {error}\n  again: ./dev sim --workload {name} --first {seed} --seeds 1")
            if sys.stderr.isatty():
                print(f"\r{done} of {len(jobs)}", end="", file=sys.stderr)
    print(f"\nsimulation: {len(jobs)} seeds in {time.monotonic() - started_s:.0f} s, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
