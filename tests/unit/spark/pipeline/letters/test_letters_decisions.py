"""What was decided of a batch is found again, and only as long as it is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("msgspec")

from tidelog.spark.pipeline.batch_state import StateError
from tidelog.spark.pipeline.letters.decisions import Decided, Decisions
from tidelog.spark.pipeline.letters.waking import Waker


def decided(batch: int, **more: object) -> Decided:
    return Decided(batch=batch, definition="a and b", **more)  # type: ignore[arg-type]


def test_a_repeated_batch_finds_its_own_and_the_next_one_the_last(tmp_path: Path) -> None:
    decisions = Decisions(tmp_path / "query", "a and b")
    assert decisions.of(0) is None
    assert decisions.before(5) is None
    assert decisions.last() is None
    for batch in (0, 1, 3):  # a batch may be missing: one that died before its decision
        folder = decisions.folder(batch, "1-1")
        folder.mkdir()
        (folder / "part").write_bytes(b"rows")
        decisions.keep(decided(batch, data=folder.name, outcomes={"waiting": batch}, due_ms=7))
    assert decisions.of(3) == decisions.last() == decisions.before(4)
    assert decisions.of(1) is None  # two batches are kept, by number
    assert decisions.before(3) is None
    assert sorted(path.name for path in decisions.home.iterdir()) == ["3-1-1", "3.json"]
    decisions.keep(decided(4))
    assert decisions.before(4) == decided(3, data="3-1-1", outcomes={"waiting": 3}, due_ms=7)


def test_letters_in_other_topics_are_refused(tmp_path: Path) -> None:
    Decisions(tmp_path, "a and b").keep(decided(0))
    with pytest.raises(StateError, match="the flow's letters are in a and b"):
        Decisions(tmp_path, "a and c").last()


def test_a_wake_for_what_is_due_and_one_only() -> None:
    waker = Waker({}, "retry")
    last = decided(3, due_ms=100)
    assert not waker.is_due(last, 99)
    assert waker.is_due(last, 100)
    waker._woken = last
    assert not waker.is_due(last, 200)
    # The batch that came of it has left something that is due already (the clock stepped back meanwhile).
    assert waker.is_due(decided(4, due_ms=100), 200)
    assert not waker.is_due(decided(4), 200)
