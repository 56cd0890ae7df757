"""Attempts at one task that run side by side: one hangs, Spark starts another elsewhere, and the other wins.

The hanging one is a real attempt that is stopped in the middle of whatever it does (SIGSTOP to the Python workers of an
executor), and goes on afterwards if Spark has left it alive. That the other attempt won is read from Spark's event log,
so a round in which nothing of the kind happened is not called one.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Final

HOSTS: Final = ("127.0.0.1", "127.0.0.2")
"""Spark never runs a second attempt on the host of the first."""


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


def wins(events: Path) -> int:
    """How many second attempts have been done before the first ones, of all drivers so far."""
    return sum(_wins_in(log) for log in sorted(events.glob("*")))


def _wins_in(log: Path) -> int:
    with log.open() as lines:
        return sum(_is_win(line) for line in lines if '"Speculative":true' in line)


def _is_win(line: str) -> bool:
    try:
        event = json.loads(line)
    except ValueError:
        return False  # the last line of a driver that lives, or has died, is not whole
    done = event.get("Task End Reason", {}).get("Reason") == "Success"
    return bool(event["Event"] == "SparkListenerTaskEnd" and done and event["Task Info"]["Speculative"])


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
