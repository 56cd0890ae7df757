"""The ports that a node is built on, picked once by whoever starts it."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tidelog.kernel.ports import Clock, Disk, Net, Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    clock: Clock
    disk: Disk
    net: Net
    workers: Workers
    random: random.Random


def os_ports(*, durable: bool = True) -> Ports:
    """The operating system's. Without durability nothing is synced: for data that nobody keeps."""
    from tidelog.runtime.clock import SystemClock
    from tidelog.runtime.net import OsNet
    from tidelog.runtime.workers import ThreadWorkers

    disk: Disk
    if durable:
        from tidelog.runtime.disk import OsDisk

        disk = OsDisk()
    else:
        from tidelog.runtime.ephemeral import EphemeralDisk

        disk = EphemeralDisk()
    return Ports(clock=SystemClock(), disk=disk, net=OsNet(), workers=ThreadWorkers(), random=random.SystemRandom())
