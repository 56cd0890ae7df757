"""The node's coordinators under simulation: scripted members and producers, and what may never happen to them. A seed
replays a failure: `./dev sim --workload NAME --first SEED --seeds 1`."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.groups_workload import run_groups
from tests.sim.seeds import seeds_of
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
