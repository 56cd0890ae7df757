"""The collector after the start of a node."""

from __future__ import annotations

import subprocess
import sys


def test_what_was_there_is_not_looked_at_again_and_the_young_less_often() -> None:
    """In a process of its own: it is the whole process's collector."""
    script = (
        "import gc; from tidelog.runtime.garbage import settle; old = [[] for _ in range(100_000)]; "
        "settle(); assert gc.get_freeze_count() > 100_000; assert len(gc.get_objects()) < 1000; "
        "assert gc.isenabled() and gc.get_threshold()[0] > 700"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
