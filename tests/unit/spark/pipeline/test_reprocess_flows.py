"""Which flows are rebuilt when none is named: those whose rows were made by another definition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")
pytest.importorskip("pyarrow")

from tests.unit.spark.pipeline.test_reprocess_since import FILE
from tidelog.cli.main import main
from tidelog.spark.pipeline import session
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.reprocess import reprocessing
from tidelog.spark.pipeline.reprocess.reprocessing import flows_to_rebuild
from tidelog.spark.pipeline.reprocess.since import ReprocessError
from tidelog.spark.pipeline.starts import note_definition

LARGE = FILE.replace("SELECT * FROM orders}", "SELECT * FROM orders WHERE offset > 1}")


def load(text: str, home: Path) -> Pipeline:
    return load_text(text, home, "shop.yaml", {})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Every flow but `both` has written rows by what the file was."""
    pipeline = load(FILE, tmp_path)
    for name, flow in pipeline.flows.items():
        if name != "both":
            checkpoint = pipeline.work / "checkpoints" / name
            checkpoint.mkdir(parents=True)
            (checkpoint / "metadata").write_text(json.dumps({"id": f"query-of-{name}"}))
            note_definition(pipeline, flow, f"query-of-{name}")
    return tmp_path


def names(text: str, home: Path, flow: str | None = None) -> list[str]:
    return [found.name for found in flows_to_rebuild(load(text, home), flow, None)]


def test_what_has_changed_and_what_reads_it(home: Path) -> None:
    with pytest.raises(ReprocessError, match="no flow has changed"):
        names(FILE, home)
    assert names(LARGE, home) == ["large", "minutes"]
    assert names(LARGE, home, "orders") == ["orders"]


def test_rows_of_two_definitions_are_changed_whichever_the_file_has(home: Path) -> None:
    changed = load(LARGE, home)
    note_definition(changed, changed.flows["large"], "query-of-large")
    assert names(LARGE, home) == ["large", "minutes"]
    assert names(FILE, home) == ["large"]


def test_one_that_cannot_be_rebuilt_stops_all_before_anything_is_done(home: Path) -> None:
    other = FILE.replace("topics: [orders]", "topics: [orders, more]")
    with pytest.raises(ReprocessError) as refused:
        names(other, home)
    text = str(refused.value)
    assert "'loud' writes to the topic 'loud'" in text
    assert text.endswith("Changed are orders, large, loud, named, minutes; --flow rebuilds one of them")


def test_the_command_rebuilds_one_after_the_other_in_one_start_of_spark(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []

    class Spark:
        def newSession(self) -> str:
            return "views of its own"

        def stop(self) -> None:
            done.append("stopped")

    class Rebuilt:
        def __init__(self, pipeline: Pipeline, flow: str, session: Any, *_: object, **options: object) -> None:
            assert options["keep_old"]
            self._flow, self._session = flow, session

        def run(self) -> None:
            done.append(f"{self._flow} with {self._session()}")

    monkeypatch.setattr(reprocessing, "Reprocessing", Rebuilt)
    monkeypatch.setattr(session, "session_of", lambda pipeline: done.append("started") or Spark())
    file = home / "shop.yaml"
    file.write_text(LARGE)
    assert main(["pipeline", "reprocess", str(file), "--yes", "--keep-old"]) == 0
    assert done == ["started", "large with views of its own", "minutes with views of its own", "stopped"]
    assert "changed since their rows were made: large, minutes" in capsys.readouterr().err
