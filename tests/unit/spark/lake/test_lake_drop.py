"""A table is dropped, and can be made anew at the same place."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from tests.unit.spark.lake.rig import FORMATS, append, coordinates, coordinates_of, records, table_in


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_of_a_dropped_table_is_left(tmp_path: Path, format: str) -> None:
    table = table_in(tmp_path, format)
    table.drop()  # there is none yet
    append(table, records(0, 10))
    table.drop()
    assert not table.exists()
    assert not Path(table.uri).exists()
    append(table, records(20, 5))  # the same query and batch: nobody remembers them
    assert coordinates(table) == coordinates_of(records(20, 5))


@pytest.mark.parametrize("format", FORMATS)
def test_the_folders_of_a_table_are_known(tmp_path: Path, format: str) -> None:
    assert table_in(tmp_path, format, partition_by=()).partitioned_by() == ()
    append(table_in(tmp_path, format), records(0, 10))
    assert table_in(tmp_path, format, partition_by=()).partitioned_by() == ("event_date",)
