"""A Tidelog node in a process of its own, started and stopped like the Apache one beside it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


class TidelogNode:
    def __init__(self, directory: Path, *, properties: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.properties = {"group.initial.rebalance.delay.ms": "0", **(properties or {})}
        self.bootstrap_servers = ""
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> TidelogNode:
        command = [sys.executable, "-m", "tidelog", "serve", "--data", str(self.directory), "--listen", "127.0.0.1:0"]
        for key, value in self.properties.items():
            command += ["--override", f"{key}={value}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("tidelog is ready on "):
            raise RuntimeError(f"Tidelog did not start: {line}")
        self.bootstrap_servers = line.split(" ")[4].rstrip(",")
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None
