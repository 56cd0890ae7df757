"""A pipeline is run: exactly once over several runs, through failures of single flows, and to a clean stop.

The topics are folders of Parquet files here, which Spark streams by itself; test_pipeline_kill.py has a real node.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow.parquet as pq

from tests.spark.folder_topic import FolderTopic
from tidelog.runtime.clock import SystemClock
from tidelog.spark.lake import open_table
from tidelog.spark.pipeline import Pipeline, PipelineError
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.model import Table
from tidelog.spark.pipeline.runner import RunError, Runner
from tidelog.spark.pipeline.state import StateFiles
from tidelog.spark.pipeline.status import text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(400)  # seconds alone, minutes beside others

HEAD = """\
name: shop
bootstrap.servers: 127.0.0.1:1
lake: lake
defaults:
  restart: {first: 100ms, most: 200ms, give_up_after: 3}
flows:
  orders:
    kind: ingest
    topics: orders
    decode: {wire: json, schema: "id BIGINT, at TIMESTAMP"}
    event_time: payload.at
"""
MORE = """\
  even:
    kind: sql
    from: orders
    query: SELECT offset, payload.id, event_date FROM orders WHERE payload.id % 2 = 0
  minutes:
    kind: aggregate
    from: orders
    time: payload.at
    watermark: 1m
    window: {tumbling: 1m}
    measures: {number: count}
"""


class Topic(FolderTopic):
    """Files of ten records, a minute of event time each."""

    def add(self, values: list[bytes] | None = None) -> None:
        self.write(values or [self.value(self.records + n) for n in range(10)])

    def value(self, number: int) -> bytes:
        return json.dumps({"id": number, "at": f"2026-11-16T00:{number // 10:02d}:{number % 10:02d}Z"}).encode()


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path / "topic", "orders")


def pipeline_of(tmp_path: Path, content: str) -> Pipeline:
    return load_text(content, tmp_path, "shop.yaml", {})


def read(table: Table, *columns: str) -> list[Any]:
    opened = open_table(table.path, table.format, partition_by=table.partition_by)
    found: list[Any] = []
    for file in opened.files():
        for row in pq.ParquetFile(file).read(columns=list(columns)).to_pylist():
            found += [tuple(row.values()) if len(columns) > 1 else row[columns[0]]]
    return sorted(found, key=repr)


def test_the_state_of_a_run_that_is_over_has_the_last_batch(
    spark: SparkSession, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several batches, and the end, come between two looks, as the last ones of a run on a quick machine do.
    monkeypatch.setattr("tidelog.spark.pipeline.runner.LOOK_S", 3.0)
    pipeline = pipeline_of(tmp_path, HEAD)
    for _ in range(2):
        topic.add()
    assert Runner(pipeline, spark, SystemClock(), print, once=True, source=topic.source(spark)).run() == 0
    (state,) = StateFiles(pipeline.work).read(["orders"]).flows
    assert state.progress is not None
    assert (state.phase, state.progress.batch) == ("done", 1)


def test_all_kinds_of_flows_go_on_where_the_last_run_ended(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, HEAD + MORE)
    topic.add()
    topic.add([b"{broken", topic.value(11)])
    told: list[str] = []
    assert Runner(pipeline, spark, SystemClock(), told.append, once=True, source=topic.source(spark)).run() == 0
    topic.add([topic.value(50), topic.value(3)])  # the watermark passes minute 0, but a row of it is in the same batch
    topic.add([topic.value(4)])  # and this one is late
    assert Runner(pipeline, spark, SystemClock(), told.append, once=True, source=topic.source(spark)).run() == 0
    orders, even, minutes = pipeline.flows.values()
    assert read(orders.table, "offset") == sorted(range(15), key=repr)
    assert read(orders.table, "offset", "payload_error") == sorted(
        ((n, "not JSON of the given schema" if n == 10 else None) for n in range(15)), key=repr
    )
    assert read(even.table, "offset", "id") == sorted([*((n, n) for n in range(0, 10, 2)), (12, 50), (14, 4)], key=repr)
    counted = {start.minute: number for start, number in read(minutes.table, "window_start", "number")}
    assert counted == {0: 11, 1: 1}
    late = read(minutes.late, "offset", "late_reason")  # type: ignore[attr-defined]
    assert late == [(10, "no event time"), (14, "window closed")]
    status = StateFiles(pipeline.work).read(list(pipeline.flows))
    assert [(state.flow, state.phase, state.late) for state in status.flows] == [
        ("orders", "done", None),
        ("even", "done", None),
        ("minutes", "done", 2),
    ]
    assert not status.alive
    assert "with exit code 0" in text("shop", status, SystemClock().wall_ms())


def test_a_failing_flow_starts_again_or_is_given_up_and_the_others_go_on(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    flows = "".join(
        f"  {name}: {{kind: sql, from: orders, query: SELECT offset FROM orders}}\n" for name in ("mends", "never")
    )
    pipeline = pipeline_of(tmp_path, HEAD + flows)
    topic.add()
    (tmp_path / "lake").mkdir()
    for name in ("mends", "never"):
        (tmp_path / "lake" / name).write_text("in the way of the table's directory")
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        if line.startswith("mends: failed (2 in a row)"):
            (tmp_path / "lake" / "mends").unlink()

    runner = Runner(pipeline, spark, SystemClock(), tell, once=True, source=topic.source(spark))
    assert runner.run() == 1
    assert [line for line in told if line.startswith("never: given up (failure 3 in a row)")]
    assert told[-1] == "ended; given up: never"
    for name in ("orders", "mends"):
        assert read(pipeline.flows[name].table, "offset") == list(range(10))
    states = {state.flow: state for state in StateFiles(pipeline.work).read(list(pipeline.flows)).flows}
    assert (states["never"].phase, states["mends"].phase, states["mends"].restarts) == ("given up", "done", 2)
    assert states["never"].last_error


def test_a_stop_finishes_the_batch_that_is_being_written(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, HEAD.replace("restart:", "trigger: 100ms\n  restart:"))
    for _ in range(3):
        topic.add()
    writing, stop_seen = threading.Event(), threading.Event()
    runner = Runner(pipeline, spark, SystemClock(), lambda line: None, source=topic.source(spark))
    flow = runner._flows["orders"]
    write, close_gate = flow._write, flow.close_gate

    def slow(frame: DataFrame, batch: int) -> None:
        if batch == 1:
            # The stop comes in the middle of this batch, which must be whole all the same.
            runner.stop_asked = True
            writing.set()
            assert stop_seen.wait(60)
        write(frame, batch)

    def close() -> None:
        close_gate()
        stop_seen.set()

    flow._write, flow.close_gate = slow, close  # type: ignore[method-assign]
    assert runner.run() == 0
    assert writing.is_set()
    assert read(pipeline.flows["orders"].table, "offset") == sorted(range(20), key=repr)
    commits = sorted(p.name for p in (flow.checkpoint / "commits").iterdir() if p.name.isdigit())
    assert commits == ["0", "1"]
    (state,) = StateFiles(pipeline.work).read(["orders"]).flows
    assert state.phase == "stopped"
    # The next run goes on with the third file, and no other.
    assert Runner(pipeline, spark, SystemClock(), print, once=True, source=topic.source(spark)).run() == 0
    assert read(pipeline.flows["orders"].table, "offset") == sorted(range(30), key=repr)


def test_what_only_spark_can_see_is_told_with_lines_before_anything_starts(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    wrong = (
        (HEAD + MORE).replace("payload.id,", "payload.idd,").replace("    time: payload.at", "    time: payload.att")
    )
    pipeline = pipeline_of(tmp_path, wrong.replace("number: count", "number: sum(payload.id + )"))
    with pytest.raises(PipelineError) as caught:
        Runner(pipeline, spark, SystemClock(), print, source=topic.source(spark)).run()
    lines = [(fault.line, ".".join(fault.path)) for fault in caught.value.faults]
    assert lines == [(15, "flows.even.query"), (16, "flows.minutes")]
    assert "idd" in str(caught.value)
    assert not (pipeline.work / "checkpoints").exists()


def test_two_runs_at_a_time_are_refused(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, HEAD)
    lock = StateFiles(pipeline.work).lock()
    with pytest.raises(RunError, match="another process runs this pipeline already"):
        Runner(pipeline, spark, SystemClock(), print, source=topic.source(spark)).run()
    assert StateFiles(pipeline.work).read([]).alive
    lock.release()
