"""`./dev bench cleaning`, in small, on our own node: a log is filled, cleaned and measured from outside."""

from __future__ import annotations

import json
from pathlib import Path

from bench.__main__ import main
from bench.cleaning import Cleaned, render


def test_a_log_is_cleaned_and_measured(tmp_path: Path) -> None:
    file = tmp_path / "cleaning.json"
    arguments = ["--gb", "0.002", "--codecs", "lz4", "--runs", "1", "--sides", "tidelog", "--json", str(file)]
    assert main(["cleaning", *arguments]) == 0
    ((key, (found,)),) = json.loads(file.read_text()).items()
    assert key == "0.002 GB, lz4, tidelog"
    assert found["mb_per_s"] > 0
    assert found["left"] < 0.5, "a tenth of the records has a key that no later one has"


def test_the_table_compares_with_apache() -> None:
    ours, theirs = Cleaned(1.0, 200.0, 0.5, 0.1), Cleaned(2.0, 100.0, 1.0, 0.1)
    shown = render({"1 GB, none, tidelog": [ours], "1 GB, none, apache": [theirs]})
    assert "2.00 x" in shown.splitlines()[2]
