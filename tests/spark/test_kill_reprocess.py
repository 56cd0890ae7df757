"""`tidelog pipeline reprocess` killed by `kill -9` at each step, and run again: a reader of the table finds the rows of
one definition at any time, all of them, once.

Windows, as they have all that is swapped: a table, a table beside it, open windows in the state, and a checkpoint.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable

from tests.spark.doom import Moment, killed
from tests.spark.test_pipeline_reprocess import FILE, MINUTES, Died, Shop, rows
from tidelog.cli.main import main
from tidelog.spark.pipeline.checking import check
from tidelog.spark.pipeline.model import Pipeline, Table
from tidelog.spark.pipeline.reprocess.places import Places, query_of
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)  # two starts of Spark beside the tests' own; minutes where others work as well

STAGED = "before the journal"
SWAP = ("journal", "table 0", "table 1", "state", "no checkpoint", "checkpoint")
"""From the decision on the swap is only finished, which takes no Spark."""
DONE = "done"  # but for what it leaves behind
_PAUSE_S = 0.05  # a reader that never rests would take a core from those it looks at
COUNTED, SUMMED = "count", "sum(payload.id)"


class Reader(threading.Thread):
    """Reads the table all the time, and each version that it has had: one that was there for a millisecond, between two
    commits, somebody else may have met. A window has thirty records: counted that is 30, and no sum of their ids is."""

    def __init__(self, table: Table) -> None:
        super().__init__(daemon=True)
        self.seen: list[str] = []
        self.error: BaseException | None = None
        self._path = table.path
        self._version = DeltaTable(self._path).version()
        self._windows: set[Any] = set()
        self._enough = threading.Event()

    def run(self) -> None:
        try:
            while not self._enough.wait(_PAUSE_S):
                self.look()
        except BaseException as error:
            self.error = error

    def look(self) -> None:
        newest = DeltaTable(self._path).version()
        for version in range(self._version, newest + 1):
            self.look_at(version)
        self._version = newest

    def look_at(self, version: int) -> None:
        found = DeltaTable(self._path, version=version).to_pyarrow_table(columns=["window_start", "number"])
        windows = found["window_start"].to_pylist()
        assert len(windows) == len(set(windows)), f"a window is there twice in version {version}"
        missing = self._windows.difference(windows)
        assert not missing, f"windows are missing in version {version}: {missing}"
        self._windows = set(windows)
        (definition,) = {COUNTED if number == 30 else SUMMED for number in found["number"].to_pylist()}
        if self.seen[-1:] != [definition]:
            self.seen.append(definition)

    def finish(self) -> list[str]:
        self._enough.set()
        self.join(60)
        assert self.error is None, self.error
        self.look()
        return self.seen


def test_a_reprocess_that_is_killed_at_every_step_leaves_one_definition_to_readers(
    spark: SparkSession, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(broker.bootstrap_servers, broker.create_topic(partitions=2), tmp_path, spark)
    shop.produce(150)
    wrong, right = shop.pipeline(MINUTES, measure=COUNTED), shop.pipeline(MINUTES, measure=SUMMED)
    shop.run(wrong)
    file = tmp_path / "shop.yaml"
    file.write_text((FILE + MINUTES).format(servers=shop.servers, topic=shop.topic, measure=SUMMED))
    reprocess = ["pipeline", "reprocess", str(file), "--flow", "minutes", "--yes"]
    reader = Reader(right.flows["minutes"].table)
    reader.start()
    places = Places(right.work, "minutes")
    before = query_of(places.checkpoint)

    def kill(point: str) -> str:
        return killed(tmp_path / point, right.work, reprocess, {"reprocess": Moment(0, point)})

    kill(STAGED)
    assert not places.journal.exists()
    assert numbers(right) == [30] * 3, "nothing has changed, though all is ready"
    assert query_of(places.checkpoint) == before
    assert verdict(wrong, spark) == "balanced"

    for point in SWAP:
        said = kill(point)
        assert places.journal.exists(), said
        assert ("goes on with what an earlier reprocess has left" in said) == (point == "journal")
        assert numbers(right) == ([30] * 3 if point == "journal" else sums(3)), point
    kill(DONE)
    assert not places.journal.exists()
    assert numbers(right) == sums(3)
    assert query_of(places.checkpoint) not in (before, None)
    assert before is not None
    left = places.old / "checkpoints" / before
    assert left.exists()

    shop.produce(60)
    shop.run(right)  # with the windows that were open: those of the state that took the old one's place
    assert numbers(right) == sums(5)
    assert verdict(right, spark) == "balanced"

    with pytest.raises(Died):  # the one after it is to say what it has found
        shop.reprocess(right, "minutes", die_at=SWAP[-1])
    assert not left.exists(), "the next one removes what the dead one had left"
    assert main(reprocess) == 0
    assert "an earlier reprocess had died in the middle of its swap; it is finished" in capsys.readouterr().err
    assert not places.home.exists()
    assert reader.finish() == [COUNTED, SUMMED]
    assert numbers(right) == sums(5)
    assert verdict(right, spark) == "balanced"


def numbers(pipeline: Pipeline) -> list[int]:
    found = rows(pipeline.flows["minutes"].table, "window_start", "number")
    return [number for _, number in sorted(found)]


def sums(windows: int) -> list[int]:
    return [sum(range(n * 30, n * 30 + 30)) for n in range(windows)]


def verdict(pipeline: Pipeline, spark: SparkSession) -> str:
    ((_, found),) = check(pipeline, ["minutes"], lambda text: None, spark=spark)
    return found.verdict
