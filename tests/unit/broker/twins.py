"""Two nodes that are given the same: one answers what it has learned the short way, one always goes the long way."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from tests.unit.broker.virtual import Peer
from tidelog.broker.apis.fetch import _Fetch
from tidelog.broker.connection import Answer, Connection
from tidelog.node.node import Node
from tidelog.sim.disk import DiskFaults
from tidelog.testing.simulation import SimulatedWorld

TOPICS = {
    "plain": {},
    "small": {"max.message.bytes": "400"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "keyed": {"cleanup.policy": "compact"},
    "packed": {"compression.type": "lz4"},
    "guarded": {"min.insync.replicas": "2"},
}


class Twin:
    """A node and a peer of it. The one that forgets takes the long way every time."""

    def __init__(self, world: SimulatedWorld, *, forgets: bool) -> None:
        assert world.node is not None
        self.world = world
        self.node: Node = world.node
        self.short_ways = 0
        """How many requests were answered by what was learned."""
        dispatch, listener = self.node._dispatch, self.node.listeners[0]
        handle_frame, handle_new = dispatch.handle_frame, dispatch._handle_new

        def handle(connection: Connection, frame: memoryview) -> Answer | None:
            self.short_ways += 1
            if not forgets:
                return handle_frame(connection, frame)
            connection.again = None
            with patch.object(_Fetch, "_is_quiet", lambda *_: False):
                return handle_frame(connection, frame)

        def long_way(connection: Connection, frame: memoryview) -> Answer | None:
            self.short_ways -= 1
            return handle_new(connection, frame)

        listener.handle_frame = handle
        dispatch._handle_new = long_way  # type: ignore[method-assign]
        self.peer = Peer(self.node)

    def reconnect(self) -> None:
        self.peer.lose()
        self.peer = Peer(self.node)

    def send(self, frame: bytes) -> tuple[bytes, str]:
        """What it answers at once."""
        if self.peer.transport.closed:
            self.reconnect()
        self.peer.feed(frame)
        return self.receive()

    def receive(self) -> tuple[bytes, str]:
        answer = b"".join(self.peer.transport.written)
        self.peer.transport.written.clear()
        return answer, self.peer.transport.closed

    def state(self) -> list[Any]:
        counters = [
            (name, *(getattr(found, slot) for slot in found.__slots__))
            for name, found in sorted(self.node.metrics.topics.items())
        ]
        logs = [
            (p.topic, p.index, p.high_watermark, p.log.read(0, 1 << 30, end_offset=p.high_watermark).data)
            for p in self.node.partitions
            if p.topic in TOPICS
        ]
        return [counters, logs, [(api.name, api.count) for api in self.node.services.apis]]


async def twins(*, mode: str = "page-cache", disk: DiskFaults | None = None) -> tuple[Twin, Twin, dict[str, bytes]]:
    made = []
    topic_ids: dict[str, bytes] = {}
    for forgets in (False, True):
        world = SimulatedWorld(7, config={"tidelog.sync.mode": mode}, disk=disk)
        await world.start()
        twin = Twin(world, forgets=forgets)
        for name, config in TOPICS.items():
            topic_ids[name] = (await twin.peer.create_topic(name, 2, config)).topic_id
        made.append(twin)
    return made[0], made[1], topic_ids
