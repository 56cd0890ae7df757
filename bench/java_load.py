"""Load.java, compiled into the cache and kept running: the Java clients stay warm from run to run."""

from __future__ import annotations

import hashlib
import json
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

from bench.cpu import cpu_of
from tools import apache

SOURCE = Path(__file__).with_name("Load.java")
FLAGS = ("-Xms512m", "-Xmx512m")


def why_not() -> str | None:
    """The reason why the Java clients cannot be run here, None when they can."""
    return apache.why_not() or (None if shutil.which("javac") else "javac is not installed")


class JavaLoad:
    """One JVM; a context manager that starts it at the first call. An operation that does not end in time kills it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()

    def __enter__(self) -> JavaLoad:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def call(self, op: str, *, seconds_max: float, **arguments: Any) -> dict[str, Any]:
        """What the operation found, with the CPU seconds that the client took for it."""
        process = self._process or self._start()
        before = cpu_of(process.pid)
        assert process.stdin is not None
        process.stdin.write(json.dumps({"op": op, "seconds_max": seconds_max, **arguments}) + "\n")
        process.stdin.flush()
        try:
            line = self._lines.get(timeout=seconds_max + 150)
        except queue.Empty:
            self.stop()
            raise RuntimeError(f"the Java client did not end its {op} in time") from None
        found: dict[str, Any] = json.loads(line or '{"failed": "the JVM ended"}')
        if "failed" in found:
            raise RuntimeError(f"the Java client failed: {found['failed']}")
        found["client_s"] = sum(cpu_of(process.pid).since(before))
        return found

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        libs = apache.apache_libs()
        assert libs is not None, "ask why_not() first"
        command = ["java", *FLAGS, "-cp", f"{self._compiled(libs)}:{libs}/*", "Load"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._lines = queue.Queue()
        threading.Thread(target=self._read, args=(self._process, self._lines), daemon=True).start()
        return self._process

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.put(line)
        except ValueError:  # closed by stop()
            pass
        lines.put("")

    @staticmethod
    def _compiled(libs: Path) -> Path:
        home = apache.cache_dir() / "bench" / f"load-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
        if not (home / "Load.class").exists():
            command = ["javac", "-nowarn", "-d", str(home), "-cp", f"{libs}/*", str(SOURCE)]
            subprocess.run(command, check=True, timeout=120)
        return home
