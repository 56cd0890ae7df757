"""What a table was when it was last asked decides nothing: others drop it, make it, widen it and write to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T

from tests.unit.spark.lake import rig

AMOUNT = T.StructType([*rig.SOURCE.fields, T.StructField("amount", T.LongType())])
each_format = pytest.mark.parametrize("format", rig.FORMATS)


@each_format
@pytest.mark.parametrize("commits", [1, 6], ids=["shorter", "longer"])
def test_a_table_that_another_has_dropped_and_made_again(tmp_path: Path, format: str, commits: int) -> None:
    """Nothing of the old one is known: not its batches, columns or files."""
    table, other = rig.table_in(tmp_path, format), rig.table_in(tmp_path, format)
    for batch in range(4):
        rig.append(other, [rig.record(batch, amount=batch)], batch=batch, schema=AMOUNT)
    assert table.has_batch(query="q", batch=3)
    other.drop()
    rows = rig.records(100, commits)
    for batch, row in enumerate(rows):
        rig.append(other, [row], query="another", batch=batch)
    assert not table.has_batch(query="q", batch=0)
    assert not rig.append(table, more := rig.records(200, 3), batch=0).skipped
    assert rig.append(table, more, query="another", batch=commits - 1).skipped
    assert rig.read_elsewhere(table) == rig.in_order(rows + more), "and no column amount"
    assert table.describe().batches == {"another": commits - 1, "q": 0}
    assert set(table.files()) == set(other.files())


@each_format
def test_a_table_that_another_makes_after_a_look_that_found_none(tmp_path: Path, format: str) -> None:
    table, other = rig.table_in(tmp_path, format), rig.table_in(tmp_path, format)
    assert not table.has_batch(query="q", batch=0)
    assert not table.exists()
    rig.append(other, rows := rig.records(0, 5), batch=0)
    assert table.has_batch(query="q", batch=0)
    assert rig.append(table, rows, batch=0).skipped
    assert rig.read_elsewhere(table) == rig.in_order(rows)


@each_format
@pytest.mark.parametrize("there", [False, True], ids=["none", "a table"])
def test_the_batch_comes_in_between_the_look_and_the_commit(
    tmp_path: Path, format: str, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another driver, with a column that this one has not seen, and other batches around it."""
    table, other = rig.table_in(tmp_path, format), rig.table_in(tmp_path, format)
    rows = [{**row, "amount": None} for row in rig.records(0, 2)]
    if there:
        rig.append(table, rig.records(0, 2), query="before")
    else:
        rows = []
    look = table._store.look
    late = [rig.record(50, amount=5)]

    def look_and_lose(query: str) -> Any:
        found = look(query)
        for name in ("one", "q", "two"):
            rig.append(other, late, query=name, batch=3, schema=AMOUNT)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(table._store, "look", look_and_lose)
        assert rig.append(table, [rig.record(50)], batch=3).skipped
    assert rig.read_elsewhere(table) == rig.in_order(rows + late * 3)
    rig.append(table, more := [rig.record(60)], batch=4)
    assert rig.read_elsewhere(table) == rig.in_order(rows + late * 3 + [{**more[0], "amount": None}])
