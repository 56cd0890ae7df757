"""`./dev bench cleaning --latency`, in small, on our own node: what records waited before a cleaning and in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.cleaning_latency import Noticed, Waits, render


def test_waits_are_measured_before_a_cleaning_and_in_it(tmp_path: Path) -> None:
    file = tmp_path / "latency.json"
    size = ["--gb", "0.002", "--seconds", "1", "--rate", "200", "--throttle-mb", "1"]
    assert main(["cleaning", "--latency", *size, "--runs", "1", "--sides", "tidelog", "--json", str(file)]) == 0
    results = json.loads(file.read_text())
    assert list(results) == ["uncapped, tidelog", "1 MB/s, tidelog"]
    [capped] = results["1 MB/s, tidelog"]
    assert capped["cleaning_s"] >= 1, "four megabytes and more are read and written at one a second"
    for name in ("produce", "consume"):
        for when in ("quiet", "cleaning"):
            found = capped[f"{name}_{when}"]
            assert found["count"] > 100, "200 records were due"
            assert 0 < found["p50_ms"] <= found["p99_ms"]


def test_records_count_from_when_they_were_due() -> None:
    samples = [(float(second), 0.001 * (second + 1)) for second in range(200)]
    assert Waits.of(samples, 0, 100) == pytest.approx(Waits(100, 51.0, 100.0))
    assert Waits.of(samples, 100, 200) == pytest.approx(Waits(100, 151.0, 200.0))


def test_the_table_has_the_ratio_of_the_last_hundredth() -> None:
    found = Noticed(3.0, (Waits(9, 1.0, 2.0), Waits(9, 1.0, 3.0)), (Waits(9, 1.0, 4.0), Waits(9, 2.0, 10.0)))
    line = render({"uncapped, tidelog": [found]}).splitlines()[2]
    assert "1.50 x" in line
    assert "2.50 x" in line
