"""`./dev bench groups`: what large groups cost, beside Apache Kafka in one run.

Rebalances of the classic protocol and joins of the new one with scripted members (group_members.py), commits by the
load generator, and the silence of consumers that are not concerned, with real ones (group_gap.py).
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import uvloop

from bench import group_gap, topics
from bench.cpu import cpu_of
from bench.frames import Frames
from bench.generator import replay
from bench.group_members import ClassicGroup, ConsumerMember, await_coordinator, connect, decoded
from bench.lab import HEAP, page_cache
from bench.tidelog_node import TidelogNode
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tools import apache

COMMON = {"group.initial.rebalance.delay.ms": "3000", "socket.listen.backlog.size": "2048"}
PROTOCOLS = {
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
SIDES = ("tidelog", "synced", "apache")
"""Ours in page-cache mode, which is Kafka's; ours as it is by default; Apache Kafka."""
COMMIT_CONNECTIONS = 50
COMMIT_GROUP = "commits"
SETTLED_S = 90.0

Figures = dict[str, float]


class Node:
    def __init__(self, name: str, address: str, pid: int, http: str | None) -> None:
        self.name, self.address, self.pid, self.http = name, address, pid, http

        self._stops_before: dict[str, int] = {}

    def begin(self) -> None:
        """What is measured begins here: connections, topics and warm-ups are done."""
        self._stops_before = self._stops()

    def longest_stop_ms(self) -> float | None:
        """A bound of the longest stop of our loop since `begin`: one of those of the node's histogram."""
        if self.http is None:
            return None
        new = {bound: count - self._stops_before.get(bound, 0) for bound, count in self._stops().items()}
        enough = [float(bound) for bound, count in new.items() if count == new["+Inf"]]
        return min(enough) * 1000

    def _stops(self) -> dict[str, int]:
        """How many stops were no longer than each bound, in seconds."""
        if self.http is None:
            return {}
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        found = re.findall(r'^tidelog_loop_stop_seconds_bucket{le="([^"]+)"} (\d+)', text, re.MULTILINE)
        return {bound: int(count) for bound, count in found}


@contextmanager
def started(name: str) -> Iterator[Node]:
    with TemporaryDirectory(prefix="tidelog-bench-groups-") as home, ExitStack() as stack:
        directory = Path(home) / name
        if name == "apache":
            kafka = apache.ApacheKafka(directory, heap=HEAP, properties=COMMON)
            stack.callback(kafka.stop)
            kafka.start()
            assert kafka.process is not None
            yield Node(name, kafka.bootstrap_servers, kafka.process.pid, None)
            return
        http = f"127.0.0.1:{apache.free_port()}"
        mode = {} if name == "synced" else page_cache()
        node = stack.enter_context(TidelogNode(directory, properties=COMMON | mode | {"tidelog.http.listener": http}))
        assert node.process is not None
        yield Node(name, node.bootstrap_servers, node.process.pid, http)


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
        "classic": lambda node: uvloop.run(_classic(node, members, partitions, runs)),
        "consumer": lambda node: uvloop.run(_consumer(node, members, partitions, runs)),
        "commits": lambda node: _commits(node, seconds, runs),
        "gap": lambda node: _gaps(node, runs),
    }
    results: dict[str, dict[str, Figures]] = {}
    for name in names:
        for part, measure in parts.items():
            if only is not None and part not in only.split(","):
                continue
            with started(name) as node:
                found = measure(node)
                if (stop_ms := node.longest_stop_ms()) is not None:
                    found["longest_stop_ms_at_most"] = stop_ms
            results.setdefault(part, {})[name] = found
            say(f"{part}, {name}: " + ", ".join(f"{key} {value:,.1f}" for key, value in found.items()))
    print(render(results))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1))
    return 0


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


async def _classic(node: Node, members: int, partitions: int, runs: int) -> Figures:
    # The leader deals the partitions out, and no broker looks at what it has dealt: the topic need not be that large.
    topics.create(node.address, "groups", 1)
    group = ClassicGroup(await connect(node.address, members), "classic", "groups", partitions)
    await group.form()
    for _ in range(2):  # warm
        await group.rebalance()
    node.begin()
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
    topics.create(node.address, "groups", partitions)
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
        formed_s = time.perf_counter() - started_s
        node.begin()
        took, beats = [], []
        for number in range(members, members + runs):
            for one in all_members:
                one.slowest_s = 0.0
            started_s = time.perf_counter()
            running.append(asyncio.ensure_future(all_members[number].run()))
            await _settled(all_members[: number + 1], partitions, running)
            took.append(time.perf_counter() - started_s)
            beats.append(max(one.slowest_s for one in all_members[:number]))
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return {
        "formed_s": formed_s,
        "one_joins_ms": statistics.median(took) * 1000,
        "slowest_heartbeat_ms": max(beats) * 1000,
    }


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
            raise RuntimeError(f"not settled after {SETTLED_S:.0f} s: {sum(counts)} partitions owned")
        await asyncio.sleep(0.005)


def _commits(node: Node, seconds: float, runs: int) -> Figures:
    """As many connections as partitions, each with commits for its own, one after the other, all of one group."""
    topic = "groups"
    topics.create(node.address, topic, COMMIT_CONNECTIONS)
    uvloop.run(_first_commit(node))
    data = b"".join(_commit(topic, number) for number in range(COMMIT_CONNECTIONS))
    # correlation id, tags, throttle | topics, name, partitions, index | error
    frames = Frames(data, 4 + 1 + 4 + 1 + 1 + len(topic) + 1 + 4)

    def once(length_s: float) -> dict[str, Any]:
        return replay(node.address, frames, connections=COMMIT_CONNECTIONS, start=1, step=0, seconds=length_s)

    once(seconds)
    node.begin()
    before = cpu_of(node.pid)
    found = [once(seconds) for _ in range(runs)]
    spent = cpu_of(node.pid).since(before)
    requests = sum(one["requests"] for one in found)
    return {
        "commits_per_s": statistics.median(one["requests"] / one["seconds"] for one in found),
        "p50_ms": statistics.median(one["p50_ms"] for one in found),
        "p99_ms": statistics.median(one["p99_ms"] for one in found),
        "commits_per_core_s": requests / max(spent.user_s + spent.system_s, 0.01),
    }


async def _first_commit(node: Node) -> None:
    (wire,) = await connect(node.address, 1)
    await await_coordinator(wire, COMMIT_GROUP)
    while True:
        answer = decoded(await wire.send(_commit("groups", 0)), 9, OffsetCommitResponse)
        if not answer.topics[0].partitions[0].error_code:
            break
        await asyncio.sleep(0.1)
    wire.transport.close()


def _commit(topic: str, partition: int) -> bytes:
    part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)
    named = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[part])
    return encode_request(OffsetCommitRequest(group_id=COMMIT_GROUP, topics=[named]), 9, 1, "bench")


def _gaps(node: Node, runs: int) -> Figures:
    figures: Figures = {}
    for name, config in PROTOCOLS.items():
        found = []
        for number in range(runs):
            topic = f"gap-{name}-{number}"
            topics.create(node.address, topic, group_gap.PARTITIONS)
            node.begin()
            found.append(group_gap.measure(node.address, topic, topic, config))
        for field in group_gap.Gap._fields:
            figures[f"{name}_{field}"] = statistics.median(getattr(one, field) for one in found)
    return figures


def render(results: dict[str, dict[str, Figures]]) -> str:
    lines = []
    for part, sides in results.items():
        names = list(dict.fromkeys(name for found in sides.values() for name in found))
        lines += [f"| {part} | " + " | ".join(sides) + " |", "|---" * (len(sides) + 1) + "|"]
        for name in names:
            cells = [f"{found[name]:,.1f}" if name in found else "–" for found in sides.values()]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)
