"""What can befall a pipeline in a round. Each fault also heals what it has broken, as an operator would; what comes
back by itself (executors, Python workers, failed flows) is left to itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Final

from tests.spark.faults.admin import ask
from tests.spark.faults.driver import PARTS
from tests.spark.faults.processes import kill, until
from tests.spark.faults.rig import TOPIC, Rig
from tests.spark.faults.speculation import go_on, host_of, stop
from tidelog.client.topics import create_partitions

Fault = Callable[[Rig, Random, float], str]
"""Strikes now and heals; says what it was. The number is how long a node is away, at least."""


def driver(rig: Rig, random: Random, away_s: float) -> str:
    part = random.choice(PARTS)
    rig.driver.kill(part)
    rig.driver.start()
    return f"driver, {part}" if part != "all" else "driver, Python and Java"


def executor(rig: Rig, random: Random, away_s: float) -> str:
    there = rig.executors()
    assert there, "no executor was there to be killed"
    assert kill(random.choice(there))
    return f"one executor of {len(there)}"


def node(rig: Rig, random: Random, away_s: float) -> str:
    rig.node.kill()
    rig.node.start_again()
    return "node, back at once"


def away(rig: Rig, random: Random, away_s: float) -> str:
    """Longer than the clients' patience: every flow has failed for it before the node comes back."""
    began_ms = time.time_ns() // 1_000_000
    began_s = time.monotonic()
    rig.node.kill()
    until(
        lambda: all(state.failures and (state.last_error_ms or 0) > began_ms for state in rig.driver.flow_states()),
        "flows do not notice that the node is away",
    )
    time.sleep(max(0.0, away_s - (time.monotonic() - began_s)))
    rig.node.start_again()
    return f"node away for {time.monotonic() - began_s:.0f} s"


def _there(look: Callable[[], list[int]], nobody: str) -> list[int]:
    """The processes of the first look that finds some: a second one may find none."""
    found: list[int] = []
    until(lambda: bool(found.extend(look()) or found), nobody)
    return found


def python_worker(rig: Rig, random: Random, away_s: float) -> str:
    there = _there(rig.python_workers, "no Python worker")
    return f"Python worker of a task{'' if kill(random.choice(there)) else ' (it had just ended)'}"


def speculative(rig: Rig, random: Random, away_s: float) -> str:
    """Tasks hang until a second attempt at one of them has won; then they may go on."""
    executor = random.choice(_there(rig.executors, "no executor"))
    host = host_of(executor)
    stopped = stop(_there(lambda: rig.python_workers(executor), "no Python worker of an executor"))
    before = rig.wins.over(host)
    try:
        until(lambda: rig.wins.over(host) > before, "no second attempt has won", every_s=0.5)
    finally:
        woken = go_on(stopped)
    won = rig.wins.over(host) - before
    return f"tasks hang, {won} done by others, {woken} wake"


def planner(rig: Rig, random: Random, away_s: float) -> str:
    there = _there(rig.driver.planners, "no planner")
    return f"Python planner of a query{'' if kill(random.choice(there)) else ' (it had just ended)'}"


def partitions(rig: Rig, random: Random, away_s: float) -> str:
    before = len(rig.generator.ends())
    total = before + 1
    ask(rig.node.bootstrap_servers, lambda cluster: create_partitions(cluster, {TOPIC: total}))
    # Records must be in it, or the round would end before the flows have anything to miss.
    until(lambda: len(rig.generator.ends()) == total, "the new partition gets no records")
    return f"{total} partitions instead of {before}"


def schema(rig: Rig, random: Random, away_s: float) -> str:
    rig.evolve()
    return f"payloads of version {rig.generator.version}"


FAULTS: Final[dict[str, Fault]] = {
    "driver": driver,
    "executor": executor,
    "node": node,
    "away": away,
    "python-worker": python_worker,
    "speculative": speculative,
    "planner": planner,
    "partitions": partitions,
    "schema": schema,
}
KILLS: Final = ("executor", "node", "driver")
"""Those that every run has; the others join from the fourth round on."""
WEIGHTS: Final = {"driver": 4, "executor": 3, "node": 3}


MASTERS: Final = {"executor": ("standalone", "local-cluster"), "speculative": ("standalone",)}
"""Where a fault can strike, if not everywhere: a local master has no executors, and only workers on several hosts get a
second attempt at a task."""


def strikes(kind: str, master: str) -> bool:
    return master in MASTERS.get(kind, (master,))


def schedule(rounds: int, random: Random, allowed: tuple[str, ...]) -> list[str]:
    """The kills first, then each of the others once, then by weight."""
    first = [kind for kind in KILLS if kind in allowed]
    random.shuffle(first)
    then = [kind for kind in allowed if kind not in KILLS]
    random.shuffle(then)
    plan = [*first, *then]
    weights = [WEIGHTS.get(kind, 1) for kind in allowed]
    return [*plan, *random.choices(allowed, weights, k=max(0, rounds - len(plan)))][:rounds]
