"""The examples with a pipeline, each run once: what they tell is asked of tables and topics as well.

One is run as a user does, in processes of its own. The others are played here and run their pipeline in the session of
the tests, as a start of Spark for each would take more time than all the rest.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable

from tests.examples.playing import EXAMPLES, everything, held, play, play_changed
from tidelog.runtime.clock import SystemClock
from tidelog.spark.pipeline import load
from tidelog.spark.pipeline.runner import Runner
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)  # seconds alone, minutes beside others

Told = Callable[[str, Path], Any]


@pytest.fixture(scope="module")
def told(spark: SparkSession, broker: Broker) -> Iterator[Told]:
    """Plays an example with its pipeline in the session of the tests; the story with its verdict."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        story = importlib.import_module("story")

        def run(self: Any, name: str) -> None:
            lines: list[str] = []
            runner = Runner(load(self.pipeline_file(name)), spark, SystemClock(), lines.append, once=True)
            assert runner.run() == 0, lines

        patch.setattr(story.Story, "pipeline", run)

        def tell(name: str, folder: Path) -> Any:
            told = story.Story(broker.bootstrap_servers, folder)
            importlib.import_module(name).play(told)
            return told

        yield tell
    for name in ("story", "spam", "ad_reporting"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def ads(told: Told, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return told("ad_reporting", tmp_path_factory.mktemp("ads"))


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(folder / "lake" / table).to_pyarrow_table().to_pylist()
    return found


def values(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return [json.loads(value) for _, value in everything(broker.bootstrap_servers, topic, "read_committed")]


def test_bad_minutes_become_alerts(broker: Broker, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    held(play("metrics_alerts", broker.bootstrap_servers, "--dir", str(folder)))
    assert len(rows(folder, "metrics")) == len(values(broker, "metrics")) == 480
    alerts = values(broker, "alerts")
    assert Counter(alert["service"] for alert in alerts) == {"checkout": 2, "login": 1}
    bad = [row for row in rows(folder, "minutes") if row["latency_ms"] > 300 or row["failures"] > 2]
    assert len(bad) == len(alerts)
    assert {row["requests"] for row in bad} == {20}


def test_spammers_get_on_the_block_list(broker: Broker, told: Told, tmp_path: Path) -> None:
    assert told("spam", tmp_path).holds
    listed = [key for key, _ in everything(broker.bootstrap_servers, "block-list", "read_committed")]
    assert set(listed) == {b"bot-1", b"bot-2"}
    assert listed.count(b"bot-1") > 1  # a record for each window; the newest counts


@pytest.mark.parametrize("name", ["metrics_alerts", "spam"])
def test_a_pipeline_that_does_nothing_is_seen(name: str) -> None:
    change = "import story; story.Story.pipeline = lambda self, name: None; story.Story.rows = lambda self, table: []"
    with Broker(process=True) as broker:
        done = play_changed(name, change, broker.bootstrap_servers)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "DOES NOT HOLD" in done.stdout


def test_clicked_impressions_are_paid_once(broker: Broker, ads: Any) -> None:
    assert ads.holds
    shown = {ad["id"] for ad in values(broker, "impressions")}
    clicks = [click["impression"] for click in values(broker, "clicks")]
    assert {77, 9999} < set(clicks)
    pairs = Counter(row["left"]["payload"]["id"] for row in rows(ads.folder, "clicked"))
    assert pairs == Counter(click for click in clicks if click not in (77, 9999))
    alone = {row["left"]["payload"]["id"] for row in rows(ads.folder, "not_clicked") if row["side"] == "left"}
    assert alone | set(pairs) == shown and not alone & set(pairs)


def test_a_click_that_is_lost_is_seen(ads: Any) -> None:
    change = (
        "import pathlib, story; rows = story.Story.rows;"
        f"story.Story.pipeline = lambda self, name: setattr(self, 'folder', pathlib.Path({str(ads.folder)!r}));"
        "story.Story.rows = lambda self, table: ["
        "row for row in rows(self, table) if table != 'clicked' or row['left']['payload']['id'] != 5]"
    )
    with Broker(process=True) as broker:
        done = play_changed("ad_reporting", change, broker.bootstrap_servers)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "DOES NOT HOLD: every impression is clicked or not, once" in done.stdout
    assert "is spent, as it must be" in done.stdout.split("DOES NOT HOLD: ")[1]
