"""The locks of a table: one holder each, threads among them, and a wait that ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.spark.lake import LakeError, locks
from tidelog.spark.lake.locks import held


def test_a_lock_has_one_holder_and_the_other_lock_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "WAIT_S_MAX", 0.1)
    root = str(tmp_path)
    with held(root, "commit"):
        with (
            pytest.raises(LakeError, match=r"commit\.lock was held by another process for 0\.1 s"),
            held(root, "commit"),
        ):
            pass
        with held(root, "maintenance"):
            pass
    with held(root, "commit"):
        pass
