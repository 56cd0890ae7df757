"""`./dev demo`, small: the whole story in processes of its own, and that its last acts see a loss."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tidelog.spark.lake import open_table
from tidelog.spark.pipeline import load
from tools.demo.acts import AGAIN, STORY

ROOT = Path(__file__).parents[2]

pytestmark = [
    # Starts of Spark with eleven flows: too long for the suite, whose tests of Spark have six minutes.
    pytest.mark.skipif("TIDELOG_DEMO" not in os.environ, reason="TIDELOG_DEMO=1 plays the demo, some minutes"),
    # A start takes minutes where others work as well.
    pytest.mark.timeout(1500),
]


def play(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.demo", "--dir", str(folder), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=dict(os.environ))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a demo has left behind that was open for a moment only."""
    folder = tmp_path_factory.mktemp("demo") / "small"
    told = play(folder, "--seconds", "1", "--rate", "100")
    assert told.returncode == 0, told.stdout + told.stderr + (folder / "logs" / "pipeline.log").read_text()[-3000:]
    for number, act in enumerate(STORY, 1):
        assert f"\n{number}. {act.TITLE}\n" in told.stdout
    (folder / "told.txt").write_text(told.stdout)
    return folder


def test_the_story_is_told_to_its_end(folder: Path) -> None:
    told = (folder / "told.txt").read_text()
    assert "every record that had been acknowledged is in the log" in told
    assert (
        "what was acknowledged to the producers is what the log has and what the lake and the dead letters have" in told
    )
    assert "balanced: " in told and "does not balance" not in told
    assert (folder / "report.html").stat().st_size > 0
    assert not (folder / "tmp").exists()


def test_the_last_acts_see_a_loss(folder: Path) -> None:
    """They are played again on what the demo has left, with a row less in a data file. Nothing of the demo runs any
    more: a node or a run that lived would be in the way."""
    import pyarrow.parquet as pq

    table = load(folder / "shop.yaml").flows["orders"].table
    lost = Path(open_table(table.path, table.format, partition_by=table.partition_by).files()[0])
    rows = pq.ParquetFile(lost).read()
    pq.write_table(rows.slice(1), lost)
    told = play(folder, "--again")
    assert told.returncode == 1, told.stdout + told.stderr
    assert f"\n{len(AGAIN) + 1}. The end\n" in told.stdout  # it goes on to show all of it
    topic, partition, offset = (rows.column(column)[0].as_py() for column in ("topic", "partition", "offset"))
    assert f"{topic}-{partition}: {offset} missing (1)" in told.stdout
    assert "does not hold: the audit does not balance" in told.stdout
