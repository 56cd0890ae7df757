"""A Tidelog node in a process of its own, started and stopped like the Apache one beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

_STARTS_WITHIN_S = 60.0


class TidelogNode:
    def __init__(
        self,
        directory: Path,
        *,
        properties: Mapping[str, str] | None = None,
        python: str = sys.executable,
        listen: str = "127.0.0.1:0",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        own = {"group.initial.rebalance.delay.ms": "0", "tidelog.http.listener": "127.0.0.1:0"}
        self.properties = own | dict(properties or {})
        self.python = python
        self.listen = listen
        self.env = dict(os.environ) | dict(env or {})
        self.bootstrap_servers = ""
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> TidelogNode:
        self.start()
        return self

    def start(self) -> None:
        self.launch()
        assert self.process is not None
        assert self.process.stdout is not None
        give_up = threading.Timer(_STARTS_WITHIN_S, self.process.kill)
        give_up.start()
        line = self.process.stdout.readline()
        give_up.cancel()
        if not line.startswith("tidelog is ready on "):
            self.stop()
            raise RuntimeError(f"Tidelog did not start: {line}")
        self.bootstrap_servers = line.split(" ")[4].rstrip(",")

    def launch(self) -> None:
        """Starts the process and waits for nothing."""
        command = [self.python, "-m", "tidelog", "serve", "--data", str(self.directory), "--listen", self.listen]
        for key, value in self.properties.items():
            command += ["--override", f"{key}={value}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self.env)
        self.bootstrap_servers = self.listen

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None
