"""What a proof says of itself, and what all audits of a pipeline come to; no session is started for either."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("yaml")

from tidelog.spark.audit.report import Report
from tidelog.spark.pipeline.checking import CheckError, Sessions, check, summary_of, verdict_of
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.proof import Proof
from tidelog.spark.pipeline.starts import definition_of, is_changed, note_definition

FILE = """\
name: shop
bootstrap.servers: 127.0.0.1:1
lake: lake
flows:
  orders: {kind: ingest, topics: orders}
  even: {kind: sql, from: orders, query: SELECT offset % 2 AS odd FROM orders}
"""
GOOD = Proof(counts={"expected": 7, "rows": 7, "missing": 0, "surplus": 0}, faults=("missing", "surplus"))
BAD = Proof(
    counts={"expected": 7, "rows": 6, "missing": 2, "surplus": 1},
    faults=("missing", "surplus"),
    examples=('missing: {"id":1}', 'surplus: {"id":9}'),
)
NOTHING = Proof(unknown="it has not finished a batch yet")


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return load_text(FILE, tmp_path, "shop.yaml", {})


def test_a_proof_is_a_line_of_counts_and_a_sentence() -> None:
    assert GOOD.table() == (
        "EXPECTED  ROWS  MISSING  SURPLUS\n"
        "7         7     0        0\n"
        "\n"
        "balanced: the table is what the log gives when it is computed anew (7 expected, 7 rows)"
    )
    assert BAD.table().splitlines()[3:] == [
        'missing: {"id":1}',
        'surplus: {"id":9}',
        "",
        "does not balance: 2 missing, 1 surplus",
    ]
    assert NOTHING.table() == "unknown: it has not finished a batch yet"
    assert json.loads(json.dumps(BAD.as_json()))["verdict"] == "off"


def test_unknown_is_neither_balanced_nor_a_failure_unless_it_is_asked_for() -> None:
    assert (GOOD.balanced, BAD.balanced, NOTHING.balanced) == (True, False, False)
    assert [one.fails(strict=False) for one in (GOOD, BAD, NOTHING)] == [False, True, False]
    assert [one.fails(strict=True) for one in (GOOD, BAD, NOTHING)] == [False, True, True]
    # What is wrong is wrong, whatever is unknown beside it.
    both = Proof(counts={"missing": 1}, faults=("missing",), unknown="records are gone")
    assert both.verdict == "off" and both.fails(strict=False)


def test_a_pipeline_is_as_good_as_its_worst_flow(pipeline: Pipeline) -> None:
    landed = Report(partitions=[], windows=[], window_ms=1000)
    assert verdict_of([landed, GOOD]) == "balanced"
    assert summary_of(pipeline, [landed, GOOD]) == "shop: balanced (2 audits: 2 balanced)"
    assert summary_of(pipeline, [GOOD, NOTHING]) == "shop: not all is proved (2 audits: 1 balanced, 1 unknown)"
    assert summary_of(pipeline, [GOOD, NOTHING, BAD]) == (
        "shop: does not balance (3 audits: 1 balanced, 1 unknown, 1 off)"
    )


def test_a_flow_that_has_done_nothing_is_unknown_without_a_session(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(sessions: Sessions) -> None:
        raise AssertionError("a session was asked for")

    monkeypatch.setattr(Sessions, "get", refuse)
    ((name, found),) = check(pipeline, ["even"], lambda text: None)
    assert name == "even" and found.summary() == "unknown: it has not finished a batch yet"
    with pytest.raises(CheckError, match="'evn' is no flow; there are orders, even"):
        list(check(pipeline, ["evn"], lambda text: None))


def test_a_definition_is_what_makes_the_rows(pipeline: Pipeline, tmp_path: Path) -> None:
    even = pipeline.flows["even"]
    note_definition(pipeline, even, "q")
    note_definition(pipeline, even, "q")
    assert not is_changed(pipeline, even, "q") and not is_changed(pipeline, even, "another")

    def changed(old: str, new: str) -> bool:
        other = load_text(FILE.replace(old, new), tmp_path, "shop.yaml", {})
        return definition_of(other, other.flows["even"]) != definition_of(pipeline, even)

    assert changed("% 2", "% 3")
    assert changed("topics: orders", "topics: orders, event_time: key"), "of what it reads too"
    assert not changed("topics: orders", "topics: orders, max_records: 5, trigger: 1s")
    other = load_text(FILE.replace("% 2", "% 3"), tmp_path, "shop.yaml", {})
    note_definition(other, other.flows["even"], "q")
    assert is_changed(pipeline, even, "q") and is_changed(other, other.flows["even"], "q"), "rows of both are there"
