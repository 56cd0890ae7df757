"""What a proof is made of: one moment of checkpoint and tables, and the stretch of the log that was read until then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("yaml")
pytest.importorskip("pyarrow")

from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.spark.lake.frames import Snapshot
from tidelog.spark.link import Link
from tidelog.spark.pipeline import recomputing
from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.model import Pipeline, Table
from tidelog.spark.pipeline.proof import UnprovableError
from tidelog.spark.pump import Chunk

FILE = """\
name: shop
bootstrap.servers: h:1
lake: lake
flows:
  orders: {kind: ingest, topics: orders}
  even: {kind: sql, from: orders, query: SELECT * FROM orders}
  minutes: {kind: aggregate, from: orders, watermark: 1m, window: {tumbling: 1m}, measures: {number: count}}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return load_text(FILE, tmp_path, "shop.yaml", {})


class Moments:
    """Tables whose last batch is another one at each look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *batches: int) -> None:
        self._batches = iter(batches)
        monkeypatch.setattr(recomputing, "table_of", lambda table: self._table(table))

    def _table(self, table: Table) -> Any:
        taken = Snapshot(root=table.path, schema=None, files=[], batches={"q": next(self._batches)})
        return type("Fake", (), {"snapshot": lambda self: taken})()


def commit(pipeline: Pipeline, flow: str, begun: int, committed: int) -> None:
    home = pipeline.work / "checkpoints" / flow
    for name in ("offsets", "commits"):
        (home / name).mkdir(parents=True, exist_ok=True)
    (home / "metadata").write_text(json.dumps({"id": "q"}))
    (home / "offsets" / str(begun)).write_text("")
    (home / "commits" / str(committed)).write_text("")


def settled(pipeline: Pipeline, flow: str, pauses: list[float]) -> int:
    return recomputing._settled(pipeline, pipeline.flows[flow], pauses.append)[1]


def test_one_table_is_compared_up_to_the_batch_that_it_has(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnprovableError, match="has not finished a batch yet"):
        settled(pipeline, "even", [])
    commit(pipeline, "even", begun=8, committed=7)
    Moments(monkeypatch, 7, 5, 8)
    assert settled(pipeline, "even", []) == 7
    assert settled(pipeline, "even", []) == 7, "the batches after 5 were empty, or are missing"
    assert settled(pipeline, "even", []) == 8, "its offsets are there since before it was written"


def test_several_tables_are_looked_at_until_they_are_of_one_batch(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(pipeline, "minutes", begun=8, committed=7)
    Moments(monkeypatch, 7, 8, 8, 8, 7, 7)
    pauses: list[float] = []
    assert settled(pipeline, "minutes", pauses) == 7 and len(pauses) == 2
    Moments(monkeypatch, *[7, 8] * recomputing.LOOKS)
    with pytest.raises(UnprovableError, match="in the middle of a batch"):
        settled(pipeline, "minutes", [])


class FakeLink:
    """A log of one partition: (first offset, records) of its batches."""

    def __init__(self, start: int, end: int, *held: tuple[int, int]) -> None:
        self._start = start
        self._end = end
        self._held = held

    def earliest(self, places: Any) -> dict[Any, int]:
        return dict.fromkeys(places, self._start)

    def latest(self, places: Any, isolation: str) -> dict[Any, int]:
        return dict.fromkeys(places, self._end)

    def fetch(self, *_: Any, **__: Any) -> Iterator[Chunk]:
        for first, count in self._held:
            batch = build_batch([RecordInput(None, b"v", 1)] * count, base_offset=first)
            yield Chunk(memoryview(batch), (), first + count, 0)


AT = ("orders", 0)


def bounded(pipeline: Pipeline, link: FakeLink, end: int, start: int = 0) -> recomputing.Stretch:
    ingest = pipeline.flows["orders"]
    assert isinstance(ingest, Ingest)
    return recomputing._bounded(cast(Link, link), ingest, {AT: end}, {AT: start} if start else {})


def test_what_is_read_lies_within_the_log_and_what_is_gone_is_said(pipeline: Pipeline) -> None:
    whole = bounded(pipeline, FakeLink(0, 9), 7)
    assert (whole.starts[AT], whole.ends[AT], list(whole.gone)) == (0, 7, [])
    late = bounded(pipeline, FakeLink(3, 9), 7, start=5)
    assert (late.starts[AT], late.ends[AT], list(late.gone)) == (5, 7, []), "it owes nothing of before"
    gone = bounded(pipeline, FakeLink(3, 9), 7)
    assert (gone.starts[AT], gone.ends[AT], list(gone.gone)) == (3, 7, ["orders-0 begins at 3"])
    nothing = bounded(pipeline, FakeLink(8, 9), 7)
    assert (nothing.starts[AT], nothing.ends[AT]) == (8, 8), "all of it is gone"
    with pytest.raises(UnprovableError, match="landed up to 6, but the log ends before 5"):
        bounded(pipeline, FakeLink(0, 5), 7)


@pytest.mark.parametrize(("held", "is_compacted"), [([(0, 3), (3, 4)], False), ([(0, 3), (5, 2)], True)])
def test_a_compacted_log_has_gaps(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, held: list[tuple[int, int]], is_compacted: bool
) -> None:
    link = FakeLink(0, 7, *held)
    monkeypatch.setattr("tidelog.spark.link.Link", lambda config: nullcontext(link))
    anew = recomputing.Recomputed.__new__(recomputing.Recomputed)
    anew.pipeline, anew.tell = pipeline, lambda text: None
    anew.stretches = {"orders": bounded(pipeline, link, 7)}
    assert anew.is_compacted() is is_compacted
