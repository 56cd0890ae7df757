"""The processes below one that we started, by /proc: Spark names its children in their command lines only.

Nothing is found or killed by name alone: every search begins at a process of ours and goes down.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

PROC = Path("/proc")
LIMIT_S = 600.0
"""For whatever waits on a JVM or on a batch: on a busy machine minutes, and never the reason why a run fails."""


def available_mib() -> int | None:
    """Memory that could be had now; None where the system does not tell."""
    try:
        lines = (PROC / "meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) // 1024 if found else None


def command(pid: int) -> str:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def parents() -> dict[int, int]:
    """The parent of each process that is not dead."""
    found: dict[int, int] = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name in brackets may have spaces and brackets of its own.
            state, parent, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if state not in "ZX":
            found[int(entry.name)] = int(parent)
    return found


def below(roots: Iterable[int], word: str = "") -> list[int]:
    """Those that descend from one of the roots and have the word in their command line."""
    of = parents()
    ours = set(roots)
    reached = set(ours)
    grew = True
    while grew:
        more = {pid for pid, parent in of.items() if parent in reached} - reached
        reached |= more
        grew = bool(more)
    return sorted(pid for pid in reached - ours if word in command(pid))


def kill(pid: int) -> bool:
    """kill -9; whether it was still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def until(reached: Callable[[], bool], what: str, *, every_s: float = 0.02, limit_s: float = LIMIT_S) -> None:
    """Waits for an event; the limit is for a run that hangs."""
    deadline_s = time.monotonic() + limit_s
    while not reached():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"after {limit_s:g} s: {what}")
        time.sleep(every_s)
