"""User and system CPU seconds of a process, from the kernel's own count."""

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


def cpu_of(pid: int) -> Cpu:
    """Zero where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return Cpu(0.0, 0.0)
    return Cpu(int(fields[11]) / _TICKS, int(fields[12]) / _TICKS)


def private_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty"))) / 1024
