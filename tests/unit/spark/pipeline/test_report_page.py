"""The page of a report: well formed, without anything from outside, and with what it was given, escaped."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("yaml")

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.spark.lake.table import Description
from tidelog.spark.pipeline.history import Mark, Sample
from tidelog.spark.pipeline.kinds.aggregate import Aggregate
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.report.charts import draw
from tidelog.spark.pipeline.report.facts import AuditFacts, Facts, FlowFacts, TableFacts
from tidelog.spark.pipeline.report.flow_charts import charts_of, events_of
from tidelog.spark.pipeline.report.markup import tag
from tidelog.spark.pipeline.report.page import page
from tidelog.spark.pipeline.report.picture import picture
from tidelog.spark.pipeline.report.summary import condition, incidents
from tidelog.spark.pipeline.state import FlowState, RunState, Status

BEGIN = 1_794_852_000_000
EVIL = """</svg><script>alert("x")</script>&amp;'\x00\x1b[31m\ud800"""
FILE = """\
name: shop
bootstrap.servers: 127.0.0.1:1
lake: lake
flows:
  orders: {kind: ingest, topics: [orders, refunds]}
  many: {kind: ingest, topics: [a, b, c, d, e, f, g, h]}
  matched: {kind: ingest, pattern: "a<b>.*"}
  large: {kind: sql, from: orders, query: SELECT * FROM orders}
  minutes: {kind: aggregate, from: large, watermark: 1m, window: {tumbling: 1m}, measures: {number: count}}
"""


def pipeline() -> Pipeline:
    return load_text(FILE, Path("/somewhere"), "shop.yaml", {})


def flow_facts(found: Pipeline, name: str, **changed: object) -> FlowFacts:
    flow = found.flows[name]
    about = Description(uri="x", format="delta", exists=True, files=3, bytes=2048, rows=1234, batches={})
    tables = [TableFacts(table=flow.table, found=about)]
    if isinstance(flow, Aggregate):
        tables.append(TableFacts(table=flow.late, aside="late", error=EVIL))
    values = {
        "flow": flow,
        "state": FlowState(flow=name, kind="x", phase="running", written_ms=BEGIN, late=3),
        "samples": [sample(n, isinstance(flow, Aggregate)) for n in range(20)],
        "marks": [Mark(at_ms=BEGIN + 5000, what="failed", text=EVIL)],
        "tables": tables,
    }
    return FlowFacts(**{**values, **changed})  # type: ignore[arg-type]


def sample(number: int, windows: bool) -> Sample:
    at = BEGIN + number * 5000
    return Sample(
        since_ms=at,
        at_ms=at + 1200,
        rows=100,
        busy_ms=1200,
        longest_ms=1200,
        lag_records=number * 7,
        lag_ms=number * 100,
        watermark_ms=at - 60_000 if windows else None,
        totals={"late": number, "dead <letters>": number} if windows else {},
    )


def facts(**changed: object) -> Facts:
    found = pipeline()
    values = {
        "pipeline": found,
        "status": Status(
            alive=False, run=RunState(pipeline="shop", pid=2, started_ms=BEGIN, seen_ms=BEGIN + 90_000), flows=[]
        ),
        "now_ms": BEGIN + 200_000,
        "begin_ms": BEGIN,
        "end_ms": BEGIN + 100_000,
        "runs": [
            Mark(at_ms=BEGIN, what="started", text="pid 1"),
            Mark(at_ms=BEGIN + 50_000, what="died", text="pid 1"),
            Mark(at_ms=BEGIN + 53_000, what="started", text="pid 2"),
        ],
        "flows": [flow_facts(found, name) for name in found.flows],
        "audits": [AuditFacts(flow="orders", error=EVIL)],
        "checked": True,
    }
    return Facts(**{**values, **changed})  # type: ignore[arg-type]


class Outside(HTMLParser):
    """What a page would fetch or run, and whether its elements are closed as they were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.links += [
            f"{name}={value}" for name, value in attrs if name in ("src", "href", "srcset") or name[:2] == "on"
        ]
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_what_comes_from_outside_is_text() -> None:
    made = page(facts())
    outside = Outside()
    outside.feed(made)
    assert outside.open == []
    assert outside.links == []
    assert not outside.names & {"script", "link", "img", "iframe", "object", "foreignobject", "use", "image"}
    assert "@import" not in made
    assert "url(" not in made
    assert "&lt;script&gt;alert" in made
    made.encode()


def test_every_drawing_is_xml() -> None:
    drawings = re.findall(r"<svg.*?</svg>", page(facts()), re.DOTALL)
    assert len(drawings) > 20
    for drawing in drawings:
        ElementTree.fromstring(drawing)


def test_the_picture_is_one_drawing_without_scripts_and_foreign_things() -> None:
    root = ElementTree.fromstring(picture(facts()))
    names = {element.tag.removeprefix("{http://www.w3.org/2000/svg}") for element in root.iter()}
    assert names <= {"svg", "style", "title", "rect", "text", "g", "path", "circle", "line", "polyline", "polygon"}
    said = "".join(root.itertext())
    assert "could not be checked" in said
    assert "minutes: dead <letters>" in said
    assert "somewhere" not in said  # it is shown to others: no paths of this machine


def test_the_page_has_every_flow_its_measures_and_what_befell_it() -> None:
    made = page(facts())
    for words in ("Rows per second", "Batch duration", "Lag in records", "Lag in time"):
        assert made.count(f"<h3>{words}</h3>") == 5, words
    assert made.count("<h3>dead &lt;letters&gt;</h3>") == 1  # what has no title yet is shown by its name
    assert (made.count("<h3>Watermark</h3>"), made.count("<h3>Late rows, in all</h3>")) == (1, 1)
    assert "run died" in made
    assert "and 3 more" in made
    assert "running, then it died" in made
    assert "2026-11-16 18:00:00 to 18:01:40 UTC, 1m 40s" in made
    assert 'class="event bad"' in made
    assert 'class="event good"' in made


def test_nothing_is_a_page_too() -> None:
    found = pipeline()
    empty = [flow_facts(found, name, state=None, samples=[], marks=[], tables=[]) for name in found.flows]
    made = page(facts(flows=empty, runs=[], audits=[], checked=False, begin_ms=BEGIN, end_ms=BEGIN))
    assert made.count("Nothing was measured of it yet.") == 5
    assert "not checked" in made
    ElementTree.fromstring(picture(facts(flows=empty, runs=[], begin_ms=BEGIN, end_ms=BEGIN)))


def test_lines_are_cut_where_a_run_began() -> None:
    given_facts = facts()
    for chart in charts_of(given_facts, given_facts.flows[0]):
        assert len(chart.runs) == 2, chart.title
    once = replace(given_facts, runs=given_facts.runs[:1])
    assert all(len(chart.runs) == 1 for chart in charts_of(once, once.flows[0]))


def test_a_flow_that_fails_in_the_same_way_again_and_again_is_one_line() -> None:
    found = pipeline()
    texts = ["boom", "boom", "other", "boom"]
    failed = [Mark(at_ms=BEGIN + n * 1000, what="failed", text=text) for n, text in enumerate(texts)]
    started = [Mark(at_ms=mark.at_ms + 500, what="started") for mark in failed]
    marks = [mark for pair in zip(failed, started, strict=True) for mark in pair]
    told = incidents(facts(flows=[flow_facts(found, "orders", marks=marks)], runs=[]))
    assert [(one.at_ms - BEGIN, one.until_ms - BEGIN, one.text, one.times) for one in told] == [
        (0, 1000, "boom", 2),
        (2000, 2000, "other", 1),
        (3000, 3000, "boom", 1),
    ]


def test_the_head_says_how_the_run_is_beside_how_the_tables_are() -> None:
    found = pipeline()
    run = RunState(pipeline="shop", pid=2, started_ms=BEGIN, seen_ms=BEGIN)
    ended = RunState(pipeline="shop", pid=2, started_ms=BEGIN, seen_ms=BEGIN, ended_ms=BEGIN, code=1)

    def said(alive: bool, state: RunState | None, **changed: object) -> str:
        return condition(facts(status=Status(alive=alive, run=state, flows=[]), **changed))[1]

    assert said(True, run) == "running"
    assert said(False, run) == "died"
    assert said(False, ended) == "ended with exit code 1"
    assert said(False, None) == "not run yet"
    hopeless = FlowState(flow="orders", kind="x", phase="given up", written_ms=BEGIN)
    assert said(True, run, flows=[flow_facts(found, "orders", state=hopeless)]) == "1 flow given up"


def test_the_rates_add_up_to_the_rows() -> None:
    samples = [sample(n, False) for n in range(20)]
    samples.append(Sample(since_ms=BEGIN + 90_000, at_ms=BEGIN + 30_000, rows=100))  # the clock was set back
    given_facts = facts(runs=[], flows=[flow_facts(pipeline(), "orders", samples=samples)])
    (rates,) = [chart for chart in charts_of(given_facts, given_facts.flows[0]) if chart.title == "Rows per second"]
    (run,) = rates.runs
    rows = sum(value * (later[0] - at) / 1000 for (at, value, _), later in pairwise(run))
    assert rows == pytest.approx(21 * 100)


numbers = st.integers(0, 10**15)
samples_of_anything = st.builds(
    Sample,
    since_ms=st.integers(BEGIN, BEGIN + 10**6),
    at_ms=st.integers(BEGIN, BEGIN + 10**6),
    batches=st.integers(0, 2),
    rows=numbers,
    longest_ms=numbers,
    lag_records=st.none() | numbers,
    lag_ms=st.none() | numbers,
    watermark_ms=st.none() | st.integers(-(2**62), 2**62),  # a producer's clock may say anything
    totals=st.dictionaries(st.text(max_size=5), numbers, max_size=2),
)


@settings(max_examples=30)
@given(st.lists(samples_of_anything, max_size=6))
def test_whatever_was_measured_can_be_drawn(samples: list[Sample]) -> None:
    found = pipeline()
    one = flow_facts(found, "orders", samples=samples)
    drawn = facts(flows=[one])
    for chart in charts_of(drawn, one):
        made = draw(chart, drawn.begin_ms, drawn.end_ms, events_of(drawn, one))
        ElementTree.fromstring(made)
        assert not re.search(r'"[^"]*\b(nan|inf)\b', re.sub(r"<title>.*?</title>", "", made))
    ElementTree.fromstring(picture(drawn))


@given(st.text(), st.text())
def test_an_element_is_xml_whatever_is_in_it(inside: str, value: str) -> None:
    root = ElementTree.fromstring(tag("text", inside, class_=value))
    # Letters that XML cannot hold are replaced, line ends are XML's to change.
    said = [letter for letter in root.text or "" if letter.isprintable() and letter != "\ufffd"]
    assert said == [letter for letter in inside if letter.isprintable() and letter != "\ufffd"]
