"""Attempts at one task that run side by side: one hangs, Spark starts another elsewhere, and the other wins.

The hanging one is a real attempt that is stopped in the middle of whatever it does (SIGSTOP to the Python workers of an
executor), and goes on afterwards if Spark has left it alive. That the other attempt won is read from Spark's event log,
so a round in which nothing of the kind happened is not called one.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.spark.faults.event_log import EventLogs
from tests.spark.faults.processes import command

HOSTS: Final = ("127.0.0.1", "127.0.0.2")
"""Spark never runs a second attempt on the host of the first."""
_HOSTNAME: Final = re.compile(r"--hostname (\S+)")


def settings(events: Path) -> dict[str, str]:
    """Late enough that a busy machine does not run everything twice."""
    events.mkdir(parents=True, exist_ok=True)
    return {
        "spark.speculation": "true",
        "spark.speculation.interval": "500ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "3",
        "spark.speculation.minTaskRuntime": "5s",
        "spark.speculation.task.duration.threshold": "10s",  # for stages of a single task, which have no median
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


class Wins:
    """Second attempts that were done before first ones, of all drivers so far."""

    def __init__(self, events: Path) -> None:
        self._logs = EventLogs(events)
        self._by_host: Counter[str] = Counter()

    def over(self, host: str) -> int:
        """How many first attempts on this host have lost. With two hosts the others were done elsewhere."""
        self._by_host.update(winner for line in self._logs.fresh() if (winner := _winner(line)) is not None)
        return self._by_host.total() - self._by_host[host]


def _winner(line: bytes) -> str | None:
    """The host of a second attempt that has won; None if the line tells of something else."""
    if b'"Speculative":true' not in line:
        return None
    event = json.loads(line)
    done = event.get("Task End Reason", {}).get("Reason") == "Success"
    task = event.get("Task Info", {})
    if event["Event"] != "SparkListenerTaskEnd" or not done or not task["Speculative"]:
        return None
    return str(task["Host"])


def host_of(executor: int) -> str:
    """As its command line has it."""
    found = _HOSTNAME.search(command(executor))
    assert found is not None, f"executor {executor} has no host"
    return found[1]


def stop(pids: Iterable[int]) -> list[int]:
    """Those that were there to be stopped."""
    return [pid for pid in pids if _signal(pid, signal.SIGSTOP)]


def go_on(pids: Iterable[int]) -> int:
    """How many of them were still there."""
    return sum(_signal(pid, signal.SIGCONT) for pid in pids)


def _signal(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
