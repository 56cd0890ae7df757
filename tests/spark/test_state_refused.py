"""Flows that keep their state in ways of their own, a view and an ingest flow with dead letters: changed so that they
could not go on with it, they are refused before any flow of the pipeline is started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tests.spark.view_rig import BASE_MS, SCHEMA, Flowing, Record
from tidelog.runtime.clock import SystemClock
from tidelog.spark.pipeline import Pipeline, PipelineError
from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.letters.decisions import Decided
from tidelog.spark.pipeline.letters.sink import decisions_of, definition_of
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.runner import Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """\
name: shop
bootstrap.servers: h:1
lake: lake
flows:
  plain:
    kind: ingest
    topics: events
  letters:
    kind: ingest
    topics: events
    dead_letters: {topic: dead, rules: {known: "key IS NOT NULL"}}
  events: {kind: ingest, topics: events}
  view:
    kind: view
    from: events
    columns: [value]
"""
QUERY = "q"


def load(home: Path, text: str) -> Pipeline:
    return load_text(text, home, "shop.yaml", {})


def refused(spark: SparkSession, pipeline: Pipeline, home: Path) -> list[tuple[int | None, str, str]]:
    """By line and key, with the first words; nothing was started."""
    told: list[str] = []
    (home / "records").mkdir(exist_ok=True)
    stream = spark.readStream.schema(f"{SCHEMA}, headers array<struct<key: string, value: binary>>")
    runner = Runner(
        pipeline,
        spark,
        SystemClock(),
        told.append,
        once=True,
        source=lambda flow, committing: stream.parquet(str(home / "records")),
    )
    with pytest.raises(PipelineError, match="nothing was started") as caught:
        runner.run()
    assert told == []
    assert not (pipeline.work / "checkpoints" / "plain").exists()
    return [(fault.line, ".".join(fault.path), fault.text.partition(";")[0]) for fault in caught.value.faults]


def test_a_state_that_does_not_fit_is_refused_before_anything_starts(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = load(tmp_path, FILE)
    for flow in ("view", "letters"):
        checkpoint = pipeline.work / "checkpoints" / flow
        checkpoint.mkdir(parents=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    Flowing(spark, pipeline).write([Record(b"a", b"1", 0, 0, BASE_MS)], 0, query=QUERY)
    ingest = pipeline.flows["letters"]
    assert isinstance(ingest, Ingest)
    decisions_of(ingest, pipeline, QUERY).keep(Decided(batch=0, definition=definition_of(ingest)))

    renamed = FILE.replace("columns: [value]", "columns: {text: value}").replace("topic: dead,", "topic: gone,")
    assert refused(spark, load(tmp_path, renamed), tmp_path) == [
        (8, "flows.letters", "the flow's letters are in dead and dead.retry, and records may wait there"),
        (13, "flows.view", "the flow's columns is not what its table was made with"),
    ]
    without = FILE.replace('    dead_letters: {topic: dead, rules: {known: "key IS NOT NULL"}}\n', "")
    said = "the flow had 'dead_letters', and its checkpoint has their retry topic, where records may wait"
    assert refused(spark, load(tmp_path, without), tmp_path) == [(8, "flows.letters", said)]
