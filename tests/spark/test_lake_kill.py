"""kill -9 of a driver between the table's commit and Spark's own, and before either: rows once, in every format."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark import lake_stream
from tests.unit.spark.lake import rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A second session starts, beside everything else that a run of the tests does.
pytestmark = pytest.mark.timeout(300)
BATCHES = 2
BATCH_ROWS = 20
COLUMNS = ("topic", "partition", "offset", "timestamp", "value", "event_date")


@dataclass
class Story:
    home: Path
    query: str
    committed: dict[tuple[str, str], int]
    """Rows after the kill and before the restart."""
    by_glob: int
    """Of the Parquet table whose last commit was not published."""


def _rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{name: row[name] for name in COLUMNS} for row in rig.records(first, count)]


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Story:
    import pyarrow as pa
    import pyarrow.parquet as pq

    home = tmp_path_factory.mktemp("kill")
    (home / "input").mkdir()
    for batch in range(BATCHES):
        path = home / "input" / f"{batch}.parquet"
        table = pa.Table.from_pylist(_rows(batch * BATCH_ROWS, BATCH_ROWS))
        place = table.column_names.index("partition")
        pq.write_table(table.set_column(place, "partition", table.column(place).cast("int32")), path)
        os.utime(path, (batch, batch))  # Spark takes files by age
    # In a session of its own, so that the JVM and the workers die in the same moment.
    doomed = subprocess.run(
        [sys.executable, "-m", "tests.spark.lake_stream", str(home)],
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert doomed.returncode == -signal.SIGKILL, doomed.stderr[:4000]
    commits = [path.name for path in (home / "checkpoint" / "commits").iterdir() if path.name.isdigit()]
    assert commits == ["0"], "it died before Spark's own commit of batch 1"
    committed = {to: lake_stream.table_of(home, *to).count() for to in lake_stream.POINTS}
    by_glob = len(rig.read_elsewhere(lake_stream.table_of(home, "parquet", "unpublished")))
    query = lake_stream.start(spark, home)
    assert query.awaitTermination(200)
    return Story(home, query.id, committed, by_glob)


@pytest.mark.parametrize(("format", "point"), lake_stream.POINTS)
def test_rows_are_there_once(story: Story, format: str, point: str) -> None:
    assert story.committed[format, point] == (BATCH_ROWS if point == "written" else 2 * BATCH_ROWS), "died elsewhere"
    expected = _rows(0, BATCHES * BATCH_ROWS)
    table = lake_stream.table_of(story.home, format, point)
    if point == "forgetful":
        expected += _rows(BATCH_ROWS, BATCH_ROWS)
    else:
        assert table.describe().batches == {story.query: BATCHES - 1}
    assert rig.read_elsewhere(table) == rig.in_order(expected)
    assert rig.coordinates(table) == rig.coordinates_of(expected)
    orphans = rig.data_files(table) - set(table.files())
    assert bool(orphans) == (point == "written"), "what the dead one had written and not committed"
    assert set(table.remove_orphans(older_than_s=0)) == orphans
    assert rig.read_elsewhere(table) == rig.in_order(expected)


def test_readers_by_glob_did_not_see_what_was_not_published(story: Story) -> None:
    assert story.by_glob == BATCH_ROWS
