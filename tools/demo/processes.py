"""The demo's processes: each with a log file and a session of its own, so that all of it can be ended at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

TIDELOG: Final = (sys.executable, "-m", "tidelog")
_TAIL_CHARS: Final = 1500


class DemoError(Exception):
    """The story cannot go on; the text says why and where to look."""


class Running:
    def __init__(self, name: str, arguments: list[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*TIDELOG, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def expect_alive(self) -> None:
        code = self.process.poll()
        if code is not None:
            raise DemoError(f"{self.name} has ended with exit code {code}; its log is {self.log}\n{self.tail()}")

    def tail(self) -> str:
        with contextlib.suppress(OSError):
            return self.log.read_text(errors="replace")[-_TAIL_CHARS:]
        return ""

    def kill(self) -> None:
        """kill -9, with all that it has started (Spark's Java too)."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self, within_s: float) -> int:
        """As it is meant to be stopped; the exit code. Killed when that takes too long."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise DemoError(f"{self.name} did not end within {within_s:.0f} s; its log is {self.log}") from None
        self.kill()  # what it may have left behind
        return code
