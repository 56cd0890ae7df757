"""What `status` shows, from what Spark reports to the text; and the commands that need no Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("yaml")

from tidelog.cli.main import main
from tidelog.spark.pipeline.progress import Progress, progress_of
from tidelog.spark.pipeline.running import cause
from tidelog.spark.pipeline.state import FlowState, RunState, StateFiles, Status
from tidelog.spark.pipeline.status import as_json, headline, render, text

NOW = 1_790_000_000_000

REPORT = {
    "batchId": 7,
    "timestamp": "2026-11-16T10:00:00.000Z",
    "numInputRows": 120,
    "inputRowsPerSecond": 12.0,
    "processedRowsPerSecond": 60.5,
    "durationMs": {"triggerExecution": 1983, "addBatch": 900},
    "observedMetrics": {"other": {"ms": 1}, "tidelog_newest_orders": {"ms": NOW - 90_000}},
    "sources": [
        {
            "endOffset": {"a": {"0": 10, "1": 20}, "$ids": {"a": "x"}, "$behind": {"m": 0}},
            "latestOffset": {"a": {"0": 13, "1": 20, "2": 5}, "$ids": {"a": "x"}, "$behind": {"m": 1}},
        },
        {"endOffset": '{"b": {"0": 1}}', "latestOffset": '{"b": {"0": 5}}'},
        {"endOffset": "null", "latestOffset": None},
    ],
}


def test_progress_of_a_report() -> None:
    # A partition that the batch does not know yet is not counted: nobody knows where the flow will begin in it.
    assert progress_of(REPORT) == Progress(
        batch=7,
        at="2026-11-16T10:00:00.000Z",
        rows=120,
        input_rows_per_s=12.0,
        processed_rows_per_s=60.5,
        duration_ms=1983,
        lag_records=7,
        newest_ms=NOW - 90_000,
    )


def test_progress_of_a_first_report_without_rates_and_offsets() -> None:
    found = progress_of({"batchId": 0, "timestamp": "t", "inputRowsPerSecond": float("nan"), "sources": [{}]})
    assert (found.input_rows_per_s, found.lag_records, found.newest_ms) == (0.0, None, None)


def test_an_idle_report_names_the_batch_before_and_a_join_has_no_age() -> None:
    idle = progress_of({**REPORT, "numInputRows": 0, "durationMs": {"triggerExecution": 5, "latestOffset": 5}})
    assert (idle.batch, idle.idle) == (6, True)
    join = {"tidelog_newest_a": {"ms": NOW}, "tidelog_newest_b": {"ms": NOW - 1}}
    assert progress_of({**REPORT, "observedMetrics": join}).newest_ms is None


def state(**changed: object) -> FlowState:
    values = {"flow": "orders", "kind": "ingest", "phase": "running", "written_ms": NOW, "rows": 1234}
    return FlowState(**{**values, "progress": progress_of(REPORT), **changed})  # type: ignore[arg-type]


def run(**changed: object) -> RunState:
    values = {"pipeline": "shop", "pid": 77, "started_ms": NOW - 3_723_000, "seen_ms": NOW - 1000}
    return RunState(**{**values, **changed})  # type: ignore[arg-type]


def test_the_headline_tells_running_silent_died_ended_and_never_run_apart() -> None:
    def said(alive: bool, found: RunState | None) -> str:
        return headline(Status(alive=alive, run=found, flows=[]), NOW)

    assert said(True, run()) == "it runs (pid 77, started 1h2m ago)"
    assert said(True, run(seen_ms=NOW - 60_000)).endswith("has not looked at its flows for 1m")
    assert said(False, run(seen_ms=NOW - 60_000)).startswith("it died (pid 77, started 1h2m ago; last seen 1m ago)")
    assert said(False, run(ended_ms=NOW - 5000, code=1)).startswith("it ended 5s ago with exit code 1")
    assert said(False, None) == "it has not been run yet"


def test_the_table_shows_lag_watermark_late_rows_and_errors() -> None:
    windows = state(
        flow="minutes",
        kind="aggregate",
        watermark_ms=NOW,
        late=3,
        aside={"duplicates": 1200, "unmatched": 1},
        last_error="boom",
        last_error_ms=NOW - 2000,
    )
    shown = text("shop", Status(alive=True, run=run(), flows=[state(), windows]), NOW).splitlines()
    assert shown[2].split() == ["orders", "ingest", "running", "7", "60", "1,234", "7", "1m30s", "-", "-", "-", "0"]
    assert "2026-09-21 14:13:20Z" in shown[3]
    assert " duplicates 1,200, unmatched 1 " in shown[3]
    assert shown[4] == "! minutes: 2s ago: boom"
    died = text("shop", Status(alive=False, run=run(), flows=[state(), state(phase="given up")]), NOW)
    assert "running (died)" in died
    assert "given up (died)" not in died
    caught_up = msg(
        progress_of({**REPORT, "sources": [{"endOffset": {"a": {"0": 1}}, "latestOffset": {"a": {"0": 1}}}]})
    )
    assert as_json("shop", Status(alive=True, run=run(), flows=[caught_up]), NOW)["flows"][0]["lag_ms"] == 0


def msg(progress: Progress) -> FlowState:
    return state(progress=progress)


def test_rich_shows_the_same() -> None:
    from rich.console import Console

    console = Console(width=200, file=open(os.devnull, "w"), record=True)  # noqa: SIM115
    console.print(render("shop", Status(alive=True, run=run(), flows=[state(last_error="boom")]), NOW))
    console.file.close()
    shown = console.export_text()
    assert "it runs (pid 77" in shown
    assert "1m30s" in shown
    assert "! orders: boom" in shown


def test_states_are_read_as_they_were_written_and_a_lock_is_life(tmp_path: Path) -> None:
    files = StateFiles(tmp_path / "work")
    assert files.read(["orders"]) == Status(alive=False, run=None, flows=[])
    lock = files.lock()
    files.write_run(run())
    files.write_flow(state())
    files.write_flow(state(flow="run"))
    assert files.read(["orders", "run", "other"]) == Status(alive=True, run=run(), flows=[state(), state(flow="run")])
    lock.release()
    (tmp_path / "work" / "state" / "run.json").write_text("{")
    assert files.read(["orders"]) == Status(alive=False, run=None, flows=[state()])


def test_the_reason_of_a_failed_query_is_one_line() -> None:
    said = """[STREAM_FAILED] Query [id = x, runId = y] terminated with exception: Task failed. SQLSTATE: XXKST
=== Streaming Query ===
Traceback (most recent call last):
  File "x.py", line 3, in read
tidelog.client.errors.UnreachableError: no broker at 127.0.0.1:1
org.apache.spark.SparkException: more
Thread State: RUNNABLE
"""
    assert cause(said) == (
        "Task failed. SQLSTATE: XXKST | tidelog.client.errors.UnreachableError: no broker at 127.0.0.1:1"
    )
    assert cause("boom") == "boom"


def test_init_writes_a_file_that_is_right_and_does_not_write_over_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "My-Shop.yaml"
    assert main(["pipeline", "init", str(file), "-b", "broker:1234"]) == 0
    assert "name: my_shop\nbootstrap.servers: broker:1234\n" in file.read_text()
    assert main(["pipeline", "run", "--dry-run", str(file)]) == 0
    assert "is right: 3 flows, orders, large_orders, per_minute" in capsys.readouterr().out
    assert main(["pipeline", "init", str(file)]) == 1
    assert "--force writes over it" in capsys.readouterr().err
    assert main(["pipeline", "status", "--json", str(file)]) == 0
    assert json.loads(capsys.readouterr().out) == {"pipeline": "my_shop", "alive": False, "run": None, "flows": []}


def test_a_wrong_file_is_told_with_its_lines_and_nothing_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("name: shop\nlake: lake\nflows:\n  a: {kind: ingest, topic: b}\n")
    for verb in ("run", "status", "check"):
        assert main(["pipeline", verb, str(file)]) == 1
        said = capsys.readouterr().err
        assert f"{file} has 3 errors; nothing was started" in said
        assert "line 4: flows.a.topic: there is no such key; did you mean 'topics'?" in said
    assert list(tmp_path.iterdir()) == [file]


def test_dead_letters_have_columns_where_a_flow_has_them() -> None:
    plain = FlowState(flow="a", kind="ingest", phase="running", written_ms=NOW)
    status = Status(alive=False, run=None, flows=[plain])
    assert "DEAD" not in text("shop", status, NOW)
    with_letters = FlowState(
        flow="b", kind="ingest", phase="running", written_ms=NOW, dead={"decode": 1200, "rule": 34}, retrying=0
    )
    lines = text("shop", Status(alive=False, run=None, flows=[plain, with_letters]), NOW).splitlines()
    assert [line.split()[-3:] for line in lines[1:]] == [
        ["DEAD", "RETRYING", "RESTARTS"],
        ["-", "-", "0"],
        ["1,234", "0", "0"],
    ]
