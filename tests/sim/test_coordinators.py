"""The node's coordinators under simulation: scripted members and producers, and what may never happen to them. A seed
replays a failure: `./dev sim --workload NAME --first SEED --seeds 1`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from tests.sim.groups_workload import run_groups
from tests.sim.ledger import Ledger
from tests.sim.seeds import seeds_of
from tests.sim.transactions_workload import Plan, run_compacted, run_late_requests, run_plan, run_transactions
from tidelog.sim.loop import run


@seeds_of("groups")
def test_a_partition_has_one_owner_and_its_offsets_are_the_owners(
    workload: str, seeds: range, record_property: Callable[[str, object], None]
) -> None:
    grants = commits = refusals = 0
    for seed in seeds:
        ownership = run(run_groups(seed), seed)
        grants += ownership.grants
        commits += ownership.commits
        refusals += ownership.refusals
    assert grants > 10 * len(seeds) / 2 and commits and refusals, "the simulation proves nothing"
    record_property(f"seeds of {workload}", len(seeds))


TRANSACTIONS: dict[str, Callable[[int], Coroutine[Any, Any, Ledger]]] = {
    "transactions": run_transactions,
    "late": run_late_requests,
    "compacted": run_compacted,
}


@seeds_of("transactions", "late", "compacted")
def test_transactions_are_all_or_nothing_and_copies_exact(
    workload: str, seeds: range, record_property: Callable[[str, object], None]
) -> None:
    outcomes: Counter[str] = Counter()
    errors: set[str] = set()
    cleanings = 0
    for seed in seeds:
        ledger = run(TRANSACTIONS[workload](seed), seed)
        cleanings += ledger.cleanings
        outcomes += ledger.outcomes
        errors |= ledger.errors.keys()
    assert (cleanings > len(seeds)) == (workload == "compacted")
    assert outcomes["committed"] and outcomes["aborted"] and outcomes["open"], "the simulation proves nothing"
    assert {"PRODUCER_FENCED", "CONCURRENT_TRANSACTIONS", "RequestTimeoutError"} & errors, "nothing has gone wrong"
    record_property(f"seeds of {workload}", len(seeds))


def test_epochs_run_out_and_members_that_are_out_are_refused() -> None:
    """Both are drawn by some seeds of the workload above; here that they do happen."""
    rollovers = 0
    errors: set[str] = set()
    for seed in range(6):
        ledger = run(run_plan(seed, Plan(shares=True, exhausts=True)), seed)
        rollovers += ledger.rollovers
        errors |= ledger.errors.keys()
    assert rollovers > 6, "no epochs have run out"
    assert {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"} & errors, "nobody was out of the group"
