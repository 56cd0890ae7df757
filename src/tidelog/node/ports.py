"""The ports that a node is built on, picked once by whoever starts it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tidelog.kernel.ports import Clock, Disk, Jobs, Net, Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    clock: Clock
    disk: Disk
    net: Net
    workers: Workers
    jobs: Jobs
    random: random.Random
    connections_max: int = 2**31 - 1
    """How many connections there are descriptors for."""
    lag_check_s: float = 0.1
    """How often the loop's lag is looked at: a stop shows if it is longer. On virtual time each look only costs."""
    release: Callable[[], None] = lambda: None
    """Threads and descriptors go: to be called by who picked the ports, when nothing uses them any more."""


def os_ports(*, durable: bool = True) -> Ports:
    """The operating system's. Without durability nothing is synced: for data that nobody keeps."""
    from tidelog.runtime.clock import SystemClock
    from tidelog.runtime.descriptors import connections_max
    from tidelog.runtime.jobs import ProcessJobs
    from tidelog.runtime.net import OsNet
    from tidelog.runtime.workers import ThreadWorkers

    if durable:
        from tidelog.runtime.disk import OsDisk

        disk = OsDisk()
    else:
        from tidelog.runtime.ephemeral import EphemeralDisk

        disk = EphemeralDisk()
    workers = ThreadWorkers()
    jobs = ProcessJobs(workers, durable=durable)

    def release() -> None:
        jobs.close()
        workers.close()
        disk.close()

    return Ports(
        clock=SystemClock(),
        disk=disk,
        net=OsNet(),
        workers=workers,
        jobs=jobs,
        random=random.SystemRandom(),
        connections_max=connections_max(),
        lag_check_s=0.02,
        release=release,
    )
