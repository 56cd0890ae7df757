"""A whole node on virtual clock, network and disk: the same code as in production, killed and restarted at will.

async def scenario() -> None:
    world = SimulatedWorld(seed)
    await world.start()
    async with world.client("reader") as cluster:
        ...
    world.kill()
    await world.start()

tidelog.sim.loop.run(scenario(), seed)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from tidelog.client.cluster import Cluster
from tidelog.client.options import ClientOptions
from tidelog.kernel.errors import DiskError
from tidelog.node.config import load
from tidelog.node.node import Node
from tidelog.node.ports import Ports
from tidelog.sim.clock import SimClock
from tidelog.sim.disk import SimDisk
from tidelog.sim.disk_faults import DiskFaults
from tidelog.sim.jobs import SimJobs
from tidelog.sim.loop import sim_loop
from tidelog.sim.net import NetOptions, SimNet
from tidelog.sim.process import SimProcess
from tidelog.sim.workers import SimWorkers

NODE: Final = "node"
PORT: Final = 9092


class SimulatedWorld:
    """Made inside a running simulation. Everything random comes from the seed, each part from a stream of its own."""

    def __init__(
        self,
        seed: int,
        *,
        config: Mapping[str, str] | None = None,
        net: NetOptions | None = None,
        disk: DiskFaults | None = None,
    ) -> None:
        self.loop = sim_loop()
        self.random = Random(f"{seed}-world")
        self.clock = SimClock(self.loop)
        self.net = SimNet(self.loop, Random(f"{seed}-net"), net)
        self.disk = SimDisk(Random(f"{seed}-disk"), disk, wall_ms=self.clock.wall_ms)
        self.node: Node | None = None
        self.before_kill: Callable[[SimDisk], None] = lambda disk: None
        """For a look at the disk as the node left it."""
        self.starts = 0
        self.kills = 0
        self._config = {
            "log.dirs": "/data",
            "listeners": f"PLAINTEXT://{NODE}:{PORT}",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "3",
            **(config or {}),
        }
        self._process: SimProcess | None = None
        self.loop.set_exception_handler(self._on_loop_error)

    @property
    def bootstrap(self) -> str:
        return f"{NODE}:{PORT}"

    async def start(self) -> bool:
        """Start the node, or restart it from what its disk kept. False when the disk's crash point hit while
        starting; a start that failed otherwise raises, and can be tried again."""
        assert self._process is None, "the node is running"
        self.starts += 1
        process = SimProcess(self.loop, f"{NODE}-{self.starts}")
        workers = SimWorkers(self.random)
        ports = Ports(
            clock=self.clock,
            disk=self.disk,
            net=self.net.host(NODE),
            workers=workers,
            jobs=SimJobs(self.disk, workers),
            random=Random(self.random.getrandbits(64)),
        )
        config = load(None, {}, [f"{key}={value}" for key, value in self._config.items()])
        self._process = process
        self._crashed = self.loop.create_future()
        self.disk.on_crash = self._on_crash
        self.node = process.call(Node, config, ports)
        starting = process.start(self.node.start())
        await asyncio.wait([starting, self._crashed], return_when=asyncio.FIRST_COMPLETED)
        if self.has_crashed:
            self.kill()
            return False
        try:
            await starting
        except BaseException:
            self.kill()
            raise
        return True

    @property
    def failure(self) -> BaseException | None:
        """What ended the node from within: it serves nobody any more, and wants to be killed."""
        if self.node is None or not self.node.has_failed:
            return None
        try:
            self.node.raise_failure()
        except Exception as error:
            return error
        return None

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """As in a process of its own: a callback that failed ends the node. What is not the disk's fault also ends the
        simulation."""
        if isinstance(context.get("exception"), DiskError) and self.node is not None:
            self.node.on_loop_error(loop, context)
        else:
            self.loop.errors.append(context)

    def _on_crash(self) -> None:
        """In the middle of a disk operation: nothing of the node runs from here on, not even what it was about to
        do."""
        assert self._process is not None
        self._process.kill()
        if not self._crashed.done():
            self._crashed.set_result(None)

    @property
    def has_crashed(self) -> bool:
        """The disk's crash point was hit: nothing of the node can go on, it must be killed and started again."""
        return self.disk.is_crashed

    def kill(self, *, power_cut: bool = False) -> None:
        """kill -9: nothing of the node runs on. What was written stays, unless the power goes with it."""
        assert self._process is not None
        self.kills += 1
        self.before_kill(self.disk)
        self._process.kill()
        self._process = None
        self.node = None
        self.net.crash(NODE)
        self.disk = self.disk.crash(keep_page_cache=not power_cut)

    async def stop(self) -> bool:
        """A clean stop. False when the disk's crash point hit on the way: then the node wants to be killed."""
        assert self._process is not None and self.node is not None
        stopping = self._process.start(self.node.stop())
        await asyncio.wait([stopping, self._crashed], return_when=asyncio.FIRST_COMPLETED)
        if self.has_crashed:
            return False
        await stopping
        self._process.kill()
        self._process = None
        self.node = None
        self.net.crash(NODE)
        self.disk = self.disk.crash(keep_page_cache=True)
        return True

    def client(self, name: str, options: ClientOptions | None = None) -> Cluster:
        """Our client core on a host of its own."""
        chosen = options or ClientOptions(
            client_id=name, connect_timeout_s=1.0, request_timeout_s=3.0, bootstrap_timeout_s=60.0, api_timeout_s=60.0
        )
        random = Random(self.random.getrandbits(64))
        return Cluster(self.net.host(name), self.clock, self.bootstrap, random=random, options=chosen)

    async def crash_or(self, low_s: float, high_s: float) -> None:
        """Wait until the disk's crash point is hit, the node ends itself, or for a random while."""
        assert self.node is not None
        ended = asyncio.ensure_future(self.node.wait())
        timeout_s = self.random.uniform(low_s, high_s)
        try:
            await asyncio.wait([self._crashed, ended], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not ended.cancel():
                ended.exception()

    async def pause(self, low_s: float, high_s: float) -> None:
        await asyncio.sleep(self.random.uniform(low_s, high_s))
