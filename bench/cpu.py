"""CPU seconds and memory of a process and its children, from the kernel's own count."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Cpu(NamedTuple):
    user_s: float
    system_s: float

    def since(self, earlier: Cpu) -> Cpu:
        return Cpu(self.user_s - earlier.user_s, self.system_s - earlier.system_s)


def own_cpu_of(pid: int) -> Cpu:
    """Of the process alone. Zero where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return Cpu(0.0, 0.0)
    return Cpu(int(fields[11]) / _TICKS, int(fields[12]) / _TICKS)


def cpu_of(pid: int) -> Cpu:
    """Of the process, of its living helpers, and of those that have ended. Zero where there is no /proc."""
    user = system = 0
    for one in family(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        user += int(fields[11]) + int(fields[13])
        system += int(fields[12]) + int(fields[14])
    return Cpu(user / _TICKS, system / _TICKS)


def stolen_s() -> float:
    """What the host of a virtual machine has kept of its cores for others since it started. Zero where none tells."""
    try:
        fields = Path("/proc/stat").read_text().partition("\n")[0].split()
    except OSError:
        return 0.0
    return int(fields[8]) / _TICKS if len(fields) > 8 else 0.0


def private_mb(pid: int) -> float:
    return sum(_private_kb(one) for one in family(pid)) / 1024


def family(pid: int) -> list[int]:
    """The process and everything it has started that still runs."""
    found = [pid]
    for one in found:
        for listing in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += [int(child) for child in listing.read_text().split()]
            except OSError:
                continue
    return found


def _private_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))
