"""The bank in compacted topics (w5) can fail: a cleaner that drops the last record of a key is planted in the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import run
from tests.planting import DROPS_LAST, planted


@pytest.mark.timeout(400)
def test_the_bank_notices_a_cleaner_that_drops_last_records(tmp_path: Path) -> None:
    with planted(tmp_path / "bug", DROPS_LAST):
        outcome = run("w5", seconds=3, seed=5, java=False, quiet=True, keep=tmp_path / "kept")
    assert outcome.report.counts.get("wrong-total"), "\n".join(outcome.lines())
