"""Commits of offsets by the load generator: how many a second, how long each takes, what they cost the broker."""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

import uvloop

from bench import topics
from bench.cpu import cpu_of
from bench.frames import Frames
from bench.generator import replay
from bench.group_members import await_coordinator, connect, decoded
from bench.group_nodes import Node
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

CONNECTIONS = 50
GROUP = "commits"
TOPIC = "groups"


def measure(node: Node, seconds: float, runs: int) -> dict[str, float]:
    """As many connections as partitions, each with commits for its own, one after the other, all of one group."""
    topics.create(node.address, TOPIC, CONNECTIONS)
    uvloop.run(_first_commit(node))
    data = b"".join(_commit(number) for number in range(CONNECTIONS))
    # correlation id, tags, throttle | topics, name, partitions, index | error
    frames = Frames(data, 4 + 1 + 4 + 1 + 1 + len(TOPIC) + 1 + 4)

    def once(length_s: float) -> dict[str, Any]:
        return replay(node.address, frames, connections=CONNECTIONS, start=1, step=0, seconds=length_s)

    once(seconds)
    node.begin()
    before = cpu_of(node.pid)
    found = [once(seconds) for _ in range(runs)]
    spent = cpu_of(node.pid).since(before)
    requests = sum(one["requests"] for one in found)
    cpu_s = max(spent.user_s + spent.system_s, 0.01)
    return {
        "commits_per_s": statistics.median(one["requests"] / one["seconds"] for one in found),
        "p50_ms": statistics.median(one["p50_ms"] for one in found),
        "p99_ms": statistics.median(one["p99_ms"] for one in found),
        "cpu_us_each": cpu_s / max(requests, 1) * 1e6,
        "commits_per_core_s": requests / cpu_s,
    }


async def _first_commit(node: Node) -> None:
    (wire,) = await connect(node.address, 1)
    await await_coordinator(wire, GROUP)
    while True:
        answer = decoded(await wire.send(_commit(0)), 9, OffsetCommitResponse)
        if not answer.topics[0].partitions[0].error_code:
            break
        await asyncio.sleep(0.1)
    wire.transport.close()


def _commit(partition: int) -> bytes:
    part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)
    named = OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[part])
    return encode_request(OffsetCommitRequest(group_id=GROUP, topics=[named]), 9, 1, "bench")
