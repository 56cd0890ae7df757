"""What a run notes of a flow for `check`, beside the checkpoint.

Where a flow began that started at the end of its topics: what stood there before, it owes nobody. The first batch of
such a flow is empty and only says where the end was, and Spark keeps the offsets of its last hundred batches.

By which definition it writes its rows: rows that were written by another one cannot be computed anew.

    WORK/starts/FLOW                 the offsets of its first batch
    WORK/definitions/FLOW/QUERY      a line for each definition, by the id of the checkpoint's query
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.runtime.durable import replace_file
from tidelog.spark.pipeline.model import Flow, Pipeline

if TYPE_CHECKING:
    from tidelog.spark.link import At

_NO_PART: Final = ("trigger", "maintenance", "restart", "kafka", "max_records", "max_bytes", "commit_group", "table")
"""Fields that change nothing of what the rows are."""


def note_start(work: Path, flow: str, checkpoint: Path) -> None:
    """Before the first batch is written: it comes again as it was if that fails."""
    noted, first = _start_file(work, flow), checkpoint / "offsets" / "0"
    if first.exists() and not noted.exists():
        noted.parent.mkdir(exist_ok=True)
        replace_file(str(noted), first.read_bytes())


def starts_of(work: Path, flow: str) -> list[Mapping[At, int]]:
    """Of each source of its query, in the order of its plan; none when nobody has noted it."""
    from tidelog.spark.audit.checkpoint import offsets_of, sources_in

    noted = _start_file(work, flow)
    return [offsets_of(noted, source=source) for source in range(sources_in(noted))] if noted.exists() else []


def note_definition(pipeline: Pipeline, flow: Flow, query: str) -> None:
    """Before the first batch of a start is written."""
    definition, known = definition_of(pipeline, flow), definitions_of(pipeline.work, flow.name, query)
    if definition not in known:
        note_definitions(pipeline.work, flow.name, query, [*known, definition])


def definitions_of(work: Path, flow: str, query: str) -> list[str]:
    """All that rows of this query were written by, as far as they were noted."""
    file = _definition_file(work, flow, query)
    return file.read_text().split() if file.exists() else []


def note_definitions(work: Path, flow: str, query: str, definitions: Sequence[str]) -> None:
    file = _definition_file(work, flow, query)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(str(file), "\n".join(dict.fromkeys(definitions)).encode())


def is_changed(pipeline: Pipeline, flow: Flow, query: str) -> bool:
    """Whether rows of this query were written by another definition than that of now."""
    file = _definition_file(pipeline.work, flow.name, query)
    return file.exists() and file.read_text().split() != [definition_of(pipeline, flow)]


def definition_of(pipeline: Pipeline, flow: Flow) -> str:
    """A digest of what makes its rows, of the flows behind it too."""
    whole = hashlib.sha256()
    for field in dataclasses.fields(flow):
        if field.name not in _NO_PART:
            whole.update(f"{field.name}={getattr(flow, field.name)!r};".encode())
    for name in flow.inputs:
        whole.update(definition_of(pipeline, pipeline.flows[name]).encode())
    return whole.hexdigest()


def _start_file(work: Path, flow: str) -> Path:
    return work / "starts" / flow


def _definition_file(work: Path, flow: str, query: str) -> Path:
    return work / "definitions" / flow / query
