"""dedupe and join as flows that are run: over several runs, with a changed file, and with one topic on both sides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tests.spark.folder_topic import FolderTopic
from tests.spark.stateful import read
from tidelog.runtime.clock import SystemClock
from tidelog.spark.pipeline import Pipeline, PipelineError
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.runner import Runner
from tidelog.spark.pipeline.sinks import table_of
from tidelog.spark.pipeline.state import StateFiles
from tidelog.spark.pipeline.status import text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)  # seconds alone, minutes beside others

FILE = """\
name: shop
bootstrap.servers: 127.0.0.1:1
lake: lake
defaults:
  restart: {first: 100ms, most: 200ms, give_up_after: 3}
flows:
  events:
    kind: ingest
    topics: events
    decode: {wire: json, schema: "id BIGINT, what STRING, at TIMESTAMP"}
  once:
    kind: dedupe
    from: events
    by: [payload.id, payload.what]
    time: payload.at
    watermark: 10m
  orders:
    kind: sql
    from: events
    query: SELECT * FROM events WHERE payload.what = 'order'
  payments:
    kind: sql
    from: events
    query: SELECT * FROM events WHERE payload.what = 'payment'
  paid:
    kind: join
    left: orders
    right: payments
    on: [payload.id]
    time: payload.at
    within: {after: 15m}
    watermark: 5m
    watermark_of: fastest
    type: left
    unmatched: unpaid
"""


class Topic(FolderTopic):
    def add(self, *events: tuple[int, str, int]) -> None:
        """(id, what, minute), in one file."""
        self.write(
            [
                json.dumps({"id": i, "what": w, "at": f"2026-11-16T{m // 60:02d}:{m % 60:02d}:00Z"}).encode()
                for i, w, m in events
            ]
        )


def load(tmp_path: Path, content: str) -> Pipeline:
    return load_text(content, tmp_path, "shop.yaml", {})


def run(spark: SparkSession, pipeline: Pipeline, topic: Topic) -> int:
    return Runner(pipeline, spark, SystemClock(), print, once=True, source=topic.source(spark)).run()


def rows(pipeline: Pipeline, flow: str, which: int, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(read(table_of(pipeline.flows[flow].tables[which]), *columns))


def test_orders_unpaid_after_a_quarter_of_an_hour_come_out_over_several_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    pipeline, topic = load(tmp_path, FILE), Topic(tmp_path / "topic", "events")
    topic.add((1, "order", 0), (2, "order", 1), (3, "order", 2))  # offsets 0 to 2
    topic.add((1, "payment", 5), (1, "payment", 5), (2, "payment", 17))  # 3 to 5: one comes twice, one is too late
    assert run(spark, pipeline, topic) == 0
    topic.add((4, "order", 40), (3, "payment", 18))  # 6 and 7: the watermark passes 0:18 and the end of orders 2 and 3
    topic.add((4, "payment", 41), (3, "order", 2), (4, "payment", 30))  # 8 to 10: late for the join are two
    assert run(spark, pipeline, topic) == 0

    assert rows(pipeline, "paid", 0, "left_offset", "right_offset") == [(0, 3), (0, 4), (6, 8)]
    assert rows(pipeline, "paid", 1, "side", "offset", "unmatched_reason") == [
        ("left", 1, "no partner in time"),
        ("left", 2, "no partner in time"),
        ("right", 5, "no partner in time"),
        ("right", 7, "no partner in time"),
    ]
    due = {offset: due.strftime("%H:%M") for offset, due in rows(pipeline, "paid", 1, "offset", "due")}
    assert (due[1], due[2]) == ("00:16", "00:17")
    assert rows(pipeline, "paid", 2, "offset", "late_reason") == [
        (9, "older than the watermark"),
        (10, "older than the watermark"),
    ]
    assert rows(pipeline, "once", 0, "offset") == [(n,) for n in (0, 1, 2, 3, 5, 6, 7, 8)]
    assert rows(pipeline, "once", 1, "offset", "first_offset") == [(4, 3), (10, 8)]
    assert rows(pipeline, "once", 2, "offset") == [(9,)]
    status = StateFiles(pipeline.work).read(list(pipeline.flows))
    assert {state.flow: (state.late, state.aside) for state in status.flows if state.aside} == {
        "once": (1, {"duplicates": 2}),
        "paid": (2, {"unmatched": 4}),
    }
    assert "duplicates 2" in text("shop", status, SystemClock().wall_ms())

    # A state that was made otherwise is refused before anything is started, whichever way it is looked at.
    changed = FILE.replace("watermark: 10m", "watermark: 9m").replace("after: 15m", "after: 14m")
    with pytest.raises(PipelineError) as caught:
        run(spark, load(tmp_path, changed.replace("id BIGINT", "id INT")), topic)
    assert [(fault.line, ".".join(fault.path), fault.text.partition(";")[0]) for fault in caught.value.faults] == [
        (11, "flows.once", "the flow's watermark is not the one its state was made with"),
        (25, "flows.paid", "the flow's within is not the one its state was made with"),
    ]
    with pytest.raises(PipelineError) as caught:
        run(spark, load(tmp_path, FILE.replace("id BIGINT", "id STRING")), topic)
    assert [fault.text.partition(";")[0] for fault in caught.value.faults] == [
        "keys.dedupe_key.id is of another type than in the flow's state",
        "rows._key.k0 is of another type than in the flow's state",
    ]
    # A new column changes nothing that was kept; the type of a join only what comes out of it.
    wider = FILE.replace("at TIMESTAMP", "at TIMESTAMP, more INT").replace("type: left", "type: inner")
    topic.add((4, "payment", 42))
    assert run(spark, load(tmp_path, wider), topic) == 0
    assert rows(pipeline, "paid", 0, "left_offset", "right_offset") == [(0, 3), (0, 4), (6, 8), (6, 11)]
