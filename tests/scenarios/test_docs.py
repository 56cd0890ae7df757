"""The programs in the README and in the docs run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def programs() -> list[tuple[str, str]]:
    """Every Python block that is a whole program: it imports what it uses. Those of spark.md and spark-sink.md
    share a session and a node, in tests/spark."""
    found = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        if page.name in ("spark.md", "spark-sink.md"):
            continue
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
        found += [
            (page.name, block) for block in blocks if "import" in block and "..." not in block and "kept" not in block
        ]
    return found


@pytest.mark.parametrize(("page", "program"), programs(), ids=[f"{page}-{n}" for n, (page, _) in enumerate(programs())])
def test_a_program_in_the_docs_runs(page: str, program: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", program]
    # What it writes, it writes there; what it imports is here. Spark takes its time to start beside other tests.
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr


def test_there_are_programs_to_run() -> None:
    assert {page for page, _ in programs()} >= {"README.md", "testing.md"}
