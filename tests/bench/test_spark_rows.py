"""`./dev bench spark` in small: every way of reading works, and the rows are all there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")


@pytest.mark.timeout(300)
def test_our_sides_are_measured_in_each_way(tmp_path: Path) -> None:
    # In a process of its own: it ends its Spark session, which the other tests share.
    path = tmp_path / "spark.json"
    small = ["--sides", "tidelog,segments", "--sizes", "100", "--mb", "0.1", "--runs", "1", "--warm-ups", "0"]
    command = [sys.executable, "-m", "bench", "spark", *small, "--json", str(path)]
    done = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        said, _ = done.communicate(timeout=280)
    finally:
        if done.poll() is None:  # with its node and its JVM
            os.killpg(done.pid, signal.SIGKILL)
            done.communicate()
    assert done.returncode == 0, said
    found = json.loads(path.read_text())
    assert sorted(found) == [
        f"{way}, 100 B, {side}"
        for way in ("availableNow to Parquet", "availableNow to noop", "batch read to noop")
        for side in ("segments", "tidelog")
    ]
    for runs in found.values():
        assert [run["rows_per_s"] > 0 for run in runs] == [True]
    assert "against the JVM" in said
    assert "came from the broker" not in said
