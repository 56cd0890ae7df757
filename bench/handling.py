"""The node's own part of a small request: its bytes handed to a connection in this process, with no socket between.

The best of many short rounds, which a busy machine does not disturb. Appends go to a real file."""

from __future__ import annotations

import asyncio
import tempfile
import time
from typing import Any

from bench.requests import KINDS, Step, create_topic, make_steps
from tidelog.broker.connection import Connection
from tidelog.node.config import load
from tidelog.node.node import Node
from tidelog.node.ports import os_ports
from tidelog.runtime.loop import run
from tidelog.testing.wire import Wire

_CONNECTIONS = 20
_REQUESTS = 5
_ROUNDS = 1000


class _Sink:
    """A transport that takes everything."""

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1)

    def is_closing(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        pass

    def writelines(self, parts: Any) -> None:
        pass


def run_handling(only: str | None) -> int:
    """Print microseconds per request, one line per kind."""
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as home:
        run(_measure(home, only))
    return 0


async def _measure(home: str, only: str | None) -> None:
    overrides = [f"log.dirs={home}", "listeners=PLAINTEXT://127.0.0.1:0", "tidelog.sync.mode=page-cache"]
    ports = os_ports()
    node = Node(load(None, {}, overrides), ports)
    await node.start()
    try:
        for kind in KINDS:
            if only is None or only in kind:
                steps = await asyncio.to_thread(_prepare, node.addresses[0], kind)
                print(f"{kind:24} {_best_us(node, steps):7.1f} µs/request", flush=True)
    finally:
        await node.stop()
        ports.release()


def _prepare(address: str, kind: str) -> list[Step]:
    with Wire(address) as wire:
        topic_id = create_topic(wire)
        for step in make_steps("produce", 3, topic_id, wire):
            wire.socket.sendall(step(bytearray()))
            wire.socket.recv(1000)
        return make_steps(kind, _CONNECTIONS, topic_id, wire)


def _best_us(node: Node, steps: list[Step]) -> float:
    connections = []
    for number in range(len(steps)):
        connection = Connection(node.listeners[0], 1_000_000 + number)
        sink: Any = _Sink()
        connection.connection_made(sink)
        connections.append(connection)
    outbox = node.listeners[0].ledger.outbox
    best_s = float("inf")
    for _ in range(_ROUNDS):
        frames = [[step(bytearray()) for step in steps] for _ in range(_REQUESTS)]
        spent_s = 0.0
        for turn in frames:
            for connection, frame in zip(connections, turn, strict=True):
                connection.get_buffer(-1)[: len(frame)] = frame
                started_s = time.perf_counter()
                connection.buffer_updated(len(frame))
                spent_s += time.perf_counter() - started_s
            started_s = time.perf_counter()
            outbox.send()
            spent_s += time.perf_counter() - started_s
        best_s = min(best_s, spent_s)
    for connection in connections:
        connection.connection_lost(None)
    return best_s * 1e6 / (_REQUESTS * len(steps))
