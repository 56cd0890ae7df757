"""The shadow: the flow once more, with tables, checkpoint and state of its own, over the same log."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from tidelog.runtime.durable import replace_file
from tidelog.spark.offsets import Offsets
from tidelog.spark.pipeline.graph import reached
from tidelog.spark.pipeline.kinds.ingest import Ingest, source_options
from tidelog.spark.pipeline.model import Flow, Pipeline, Table, Trigger
from tidelog.spark.pipeline.plans import Source
from tidelog.spark.pipeline.reprocess.places import SHADOW, Places
from tidelog.spark.pipeline.reprocess.swap import SwappedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.spark.link import At

Starts = Mapping[str, "Mapping[At, int]"]
"""By ingest flow: where it begins; one that is not named begins at the log's start."""


def shadow_of(pipeline: Pipeline, flow: str, starts: Starts) -> Pipeline:
    """Only the flow and those it reads, which are not run; nobody else hears of it. One that begins within the log owes
    nothing of before: its `starting` says so, and the note of where it begins (`note_starts`)."""
    inputs = {name: (*one.inputs, *one.looked_up) for name, one in pipeline.flows.items()}
    wanted = [*reached(flow, inputs), *pipeline.flows[flow].looked_up]
    flows = {name: one for name, one in pipeline.flows.items() if name in wanted}
    for name, one in flows.items():
        if isinstance(one, Ingest):
            flows[name] = replace(one, starting="latest" if name in starts else "earliest")
    flows[flow] = _shadowed(flows[flow])
    return replace(pipeline, work=Places(pipeline.work, flow).shadow, flows=flows, audit=None)


def note_starts(shadow: Pipeline, flow: str, starts: Starts) -> None:
    """Where a run would note it, and in the form of a checkpoint: a line for each source."""
    if not starts:
        return
    lines = ["v1", "{}", *(json.dumps(Offsets(begin).to_json()) for begin in starts.values())]
    file = shadow.work / "starts" / flow
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(str(file), "\n".join(lines).encode())


def _shadowed(flow: Flow) -> Flow:
    """Whatever the kind calls its tables."""
    given: dict[str, Any] = {field.name: getattr(flow, field.name) for field in fields(flow)}
    changed: dict[str, Any] = {
        name: replace(value, path=value.path + SHADOW) for name, value in given.items() if isinstance(value, Table)
    }
    if isinstance(flow, Ingest):
        changed["commit_group"] = None  # the group is where the live flow is
    return replace(flow, trigger=Trigger(once=True), **changed)


def swapped(flow: Flow) -> tuple[SwappedTable, ...]:
    return tuple(
        SwappedTable(path=table.path, format=table.format, partition_by=table.partition_by) for table in flow.tables
    )


def source_from(spark: SparkSession, pipeline: Pipeline, starts: Starts) -> Source:
    """Streams that begin at given offsets."""

    def open_from(flow: Ingest, committing: bool) -> DataFrame:
        options = source_options(pipeline, flow)
        begin = starts.get(flow.name)
        options["startingOffsets"] = "earliest" if begin is None else json.dumps(Offsets(begin).to_json())
        return spark.readStream.format("tidelog").options(**options).load()

    return open_from


def plan_of(pipeline: Pipeline, flow: str, starts: Starts) -> str:
    """What a shadow is made of; one that was begun by another plan is not gone on with."""
    shadow = shadow_of(pipeline, flow, starts)
    begins = {name: Offsets(begin).to_json() for name, begin in sorted(starts.items())}
    text = json.dumps([[repr(one) for one in shadow.flows.values()], begins])
    return hashlib.sha256(text.encode()).hexdigest()
