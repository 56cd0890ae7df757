"""`./dev bench groups`: what large groups cost, beside Apache Kafka in one run of some ten minutes.

Rebalances of the classic protocol and joins of the new one with scripted members (group_members.py), commits by the
load generator (group_commits.py), and the silence of consumers that are not concerned, with real ones (group_gap.py).
Each measurement has a node of its own and a time by which it is given up; what could not be measured then is said in
place of its figures.
"""

from __future__ import annotations

import asyncio
import json
import signal
import statistics
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import uvloop

from bench import group_commits, group_gap, topics
from bench.cpu import cpu_of
from bench.group_members import ClassicGroup, ConsumerMember, await_coordinator, connect
from bench.group_nodes import SIDES, Node, started
from tools import apache

COMMON = {"group.initial.rebalance.delay.ms": "3000", "socket.listen.backlog.size": "2048"}
"""All members of the classic group are to be in its first generation."""
GAP = COMMON | {"group.initial.rebalance.delay.ms": "300"}
GAPS = {
    "cooperative": ("librdkafka", {"partition.assignment.strategy": "cooperative-sticky"}),
    "consumer": ("librdkafka", {"group.protocol": "consumer"}),
    "java_cooperative": (
        "java",
        {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"},
    ),
}
"""Whose consumers, and by which protocol. At each generation librdkafka's do not fetch until their own thread wakes."""
GAP_RUNS = 2
"""Each takes a dozen seconds: members hear of a rebalance with their next heartbeat."""
CREATED_S = 180.0
"""Five thousand partitions take Apache Kafka a minute and more: three files each, and one that is synced."""
SETTLED_S = 60.0
GIVEN_UP_S = 420.0

Figures = dict[str, float]


class Unsettled(RuntimeError):
    """The group has not come to rest in time. `figures` is what had been measured before."""

    def __init__(self, reason: str, figures: Figures | None = None) -> None:
        super().__init__(reason)
        self.figures = figures or {}


def run_groups(
    members: int,
    partitions: int,
    *,
    runs: int,
    seconds: float,
    only: str | None = None,
    sides: str | None = None,
    path: Path | None = None,
) -> int:
    # So that brokers end with us whoever ends us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    names = [name for name in SIDES if name != "apache" or apache.why_not() is None]
    if sides is not None:
        names = [name for name in names if name in sides.split(",")]
    parts: dict[str, Callable[[Node], Figures]] = {
        "classic": lambda node: _limited(_classic(node, members, partitions, runs)),
        "consumer": lambda node: _limited(_consumer(node, members, partitions, runs)),
        "commits": lambda node: group_commits.measure(node, seconds, runs),
        "gap": lambda node: _gaps(node, min(runs, GAP_RUNS)),
    }
    results: dict[str, dict[str, Figures]] = {}
    notes: dict[str, dict[str, str]] = {}
    for part, measure in parts.items():
        if only is not None and part not in only.split(","):
            continue
        for name in names:
            say(f"{part}, {name} ...")
            found, note = _measured(part, name, measure)
            results.setdefault(part, {})[name] = found
            if note:
                notes.setdefault(part, {})[name] = note
            figures = ", ".join(f"{key} {value:,.1f}" for key, value in found.items())
            say(f"{part}, {name}: " + "; ".join(filter(None, [figures, note])))
    print(render(results, notes))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**results, "notes": notes}, indent=1))
    return 0


def _measured(part: str, name: str, measure: Callable[[Node], Figures]) -> tuple[Figures, str]:
    """Figures, and why there are not more of them."""
    note = ""
    with started(name, GAP if part == "gap" else COMMON) as node:
        try:
            found = measure(node)
        except Unsettled as error:
            found, note = error.figures, f"not measured further: {error}"
        except (RuntimeError, OSError, AssertionError, LookupError, ValueError) as error:
            found, note = {}, f"not measured: {type(error).__name__} {error}".rstrip()
        with suppress(OSError):  # a node that is gone tells nothing
            if (stop_ms := node.longest_stop_ms()) is not None:
                found["longest_stop_ms_at_most"] = stop_ms
    return found, note


def _limited(measuring: Coroutine[Any, Any, Figures]) -> Figures:
    return uvloop.run(asyncio.wait_for(measuring, GIVEN_UP_S))


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


async def _classic(node: Node, members: int, partitions: int, runs: int) -> Figures:
    # The leader deals the partitions out, and no broker looks at what it has dealt: the topic need not be that large.
    topics.create(node.address, "groups", 1)
    group = ClassicGroup(await connect(node.address, members), "classic", "groups", partitions)
    await group.form()
    for _ in range(2):  # warm
        await group.rebalance()
    await asyncio.to_thread(node.begin)
    before = cpu_of(node.pid)
    found = [await group.rebalance() for _ in range(runs)]
    spent = cpu_of(node.pid).since(before)
    return {
        "join_ms": statistics.median(one.join_s for one in found) * 1000,
        "sync_ms": statistics.median(one.sync_s for one in found) * 1000,
        "total_ms": statistics.median(one.total_s for one in found) * 1000,
        "total_ms_max": max(one.total_s for one in found) * 1000,
        "cpu_ms_each": (spent.user_s + spent.system_s) / runs * 1000,
    }


async def _consumer(node: Node, members: int, partitions: int, runs: int) -> Figures:
    """A group of the new protocol that has settled; then one member more, again and again."""
    started_s = time.perf_counter()
    topics.create(node.address, "groups", partitions, patience_s=CREATED_S)
    figures: Figures = {"topic_made_s": time.perf_counter() - started_s}
    wires = await connect(node.address, members + runs)
    await await_coordinator(wires[0], "consumer")
    all_members = [
        ConsumerMember(wire, "consumer", "groups", str(UUID(int=number + 1, version=4)))
        for number, wire in enumerate(wires)
    ]
    started_s = time.perf_counter()
    running = [asyncio.ensure_future(one.run(number * 0.002)) for number, one in enumerate(all_members[:members])]
    try:
        await _settled(all_members[:members], partitions, running)
        figures["formed_s"] = time.perf_counter() - started_s
        await asyncio.to_thread(node.begin)
        took: list[float] = []
        beats: list[float] = []
        for number in range(members, members + runs):
            for one in all_members:
                one.slowest_s = 0.0
            started_s = time.perf_counter()
            running.append(asyncio.ensure_future(all_members[number].run()))
            await _settled(all_members[: number + 1], partitions, running)
            took.append(time.perf_counter() - started_s)
            beats.append(max(one.slowest_s for one in all_members[:number]))
            figures["one_joins_ms"] = statistics.median(took) * 1000
            figures["slowest_heartbeat_ms"] = max(beats) * 1000
    except Unsettled as error:
        raise Unsettled(str(error), figures) from error
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return figures


async def _settled(members: list[ConsumerMember], partitions: int, running: list[asyncio.Future[None]]) -> None:
    """Until all partitions are owned and everybody has its even share."""
    least, most = partitions // len(members), -(-partitions // len(members))
    deadline_s = time.perf_counter() + SETTLED_S
    while True:
        counts = [one.count for one in members]
        if sum(counts) == partitions and min(counts) >= least and max(counts) <= most:
            return
        for task in running:
            if task.done():
                task.result()
        if time.perf_counter() > deadline_s:
            even = sum(least <= count <= most for count in counts)
            raise Unsettled(
                f"after {SETTLED_S:.0f} s {sum(counts):,} of {partitions:,} partitions are owned, "
                f"and {even:,} of {len(members):,} members have their share"
            )
        await asyncio.sleep(0.005)


def _gaps(node: Node, runs: int) -> Figures:
    figures: Figures = {}
    for name, (client, config) in GAPS.items():
        if client == "java" and apache.why_not() is not None:
            continue
        found: list[group_gap.Gap] = []
        for number in range(runs):
            topic = f"gap-{name}-{number}"
            topics.create(node.address, topic, group_gap.PARTITIONS)
            if not figures and not found:
                node.begin()
            try:
                found.append(group_gap.measure(node.address, topic, topic, client, config))
            except RuntimeError as error:
                raise Unsettled(f"{name}, {error}", figures) from error
        for field in group_gap.Gap._fields:
            figures[f"{name}_{field}"] = statistics.median(getattr(one, field) for one in found)
    return figures


def render(results: dict[str, dict[str, Figures]], notes: dict[str, dict[str, str]] | None = None) -> str:
    lines = []
    for part, sides in results.items():
        names = list(dict.fromkeys(name for found in sides.values() for name in found))
        lines += [f"| {part} | " + " | ".join(sides) + " |", "|---" * (len(sides) + 1) + "|"]
        for name in names:
            cells = [f"{found[name]:,.1f}" if name in found else "–" for found in sides.values()]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("")
        for side, note in (notes or {}).get(part, {}).items():
            lines += [f"{part}, {side}: {note}", ""]
    return "\n".join(lines)
