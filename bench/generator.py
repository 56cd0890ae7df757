"""The load generator: replay.c, built into the cache where a C compiler is; its slower twin in Python elsewhere."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from bench.frames import Frames
from tools.apache import cache_dir

SOURCE = Path(__file__).with_name("replay.c")
FOREVER = 1 << 60


@cache
def program() -> list[str]:
    """The command of the generator."""
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None or not sys.platform.startswith("linux"):
        return [sys.executable, "-m", "bench.replay_twin"]
    built = cache_dir() / "bench" / f"replay-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        part = built.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, "-O2", "-o", str(part), str(SOURCE)], check=True, timeout=60)
        part.rename(built)
    return [str(built)]


def is_native() -> bool:
    return len(program()) == 1


def replay(
    address: str,
    frames: Frames,
    *,
    connections: int = 1,
    depth: int = 1,
    start: int = 0,
    step: int = 1,
    seconds: float,
    requests: int = FOREVER,
) -> dict[str, Any]:
    """Connection c begins with frame c * start and moves on by `step`. What the generator printed; an error raises."""
    with tempfile.NamedTemporaryFile(prefix="tidelog-bench-frames-") as file:
        file.write(frames.data)
        file.flush()
        port = address.rpartition(":")[2]
        numbers = (connections, depth, start, step, f"{seconds:.3f}", requests, frames.check)
        command = [*program(), port, file.name, *map(str, numbers)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 90, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the load generator ended with {done.returncode}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    if found["errors"]:
        raise RuntimeError(
            f"{found['errors']} of {found['requests']} requests failed, first with {found['first_error']}"
        )
    return found
