"""The bench's JSON file: rows with every run of every side, written after each row, merged with what is there.

Owns the file's form. A bench that is run row by row, or again for some of them, ends in the same file.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from bench.row import Figures, key_of

FORMAT = 1
ROOT = Path(__file__).resolve().parents[1]
Results = dict[str, Any]


class Summary(NamedTuple):
    median: float
    spread: float
    """Half of the way from the lowest run to the highest, as a share of the median."""


def machine() -> dict[str, Any]:
    return {
        "processor": _field("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(int((_field("/proc/meminfo", "MemTotal") or "0").split()[0]) / 1e6, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _field(path: str, name: str) -> str | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)


def commit() -> str:
    """The commit that was measured, with a + when the files differ from it."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def read(path: Path) -> Results:
    if not path.exists():
        return {"format": FORMAT, "machine": {}, "rows": {}}
    found: Results = json.loads(path.read_text())
    if found.get("format") != FORMAT:
        raise SystemExit(f"{path} was written by another version of the bench; name another file")
    return found


def merge(path: Path, machine_now: dict[str, Any], rows: dict[str, Any]) -> Results:
    """Replaces the rows that were measured and leaves the others; the file is never half written."""
    found = read(path)
    found["machine"] = machine_now
    found["rows"] |= rows
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(found, indent=1) + "\n")
    part.replace(path)
    return found


def summary(row: dict[str, Any], metric: str, side: str, point: str = "") -> Summary | None:
    """None when that side was not measured there."""
    runs: list[Figures] = row["cells"].get(key_of(side, point), [])
    values = [run[metric] for run in runs if metric in run]
    if not values:
        return None
    median = statistics.median(values)
    return Summary(median, (max(values) - min(values)) / 2 / median if median else 0.0)
