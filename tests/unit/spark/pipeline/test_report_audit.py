"""The audit in the report: ranges that are wrong by their offsets, tiers by window, and what the head says of both."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("yaml")

from tidelog.audit.tiers import TierWindow, Verdict
from tidelog.spark.audit.compare import Span, Tally
from tidelog.spark.audit.log import PartitionLog, Stretch
from tidelog.spark.audit.ranges import ranges
from tidelog.spark.audit.report import PartitionReport, Report
from tidelog.spark.audit.tier_report import TierReport
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.proof import Proof
from tidelog.spark.pipeline.report.audits import audit
from tidelog.spark.pipeline.report.facts import AuditFacts, Facts, FlowFacts
from tidelog.spark.pipeline.report.letters import letters
from tidelog.spark.pipeline.report.summary import tiles
from tidelog.spark.pipeline.state import FlowState, Status

BEGIN = 1_794_852_000_000


def partition(**counts: Any) -> PartitionReport:
    bounds = {"log_start": 0, "start": 100, "end": 300, "stable_end": 1305, "log_end": 1305, "claimed": 300}
    stretch = Stretch(topic="orders<b>", partition=3, **bounds)
    return PartitionReport(
        PartitionLog(stretch, ranges((100, 300)), ranges(), ranges(), Counter()), Tally("orders<b>", 3, **counts)
    )


def report(*parts: PartitionReport, tiers: TierReport | None = None) -> Report:
    return Report(partitions=list(parts), windows=[], window_ms=3_600_000, tiers=tiers)


def tiers(*verdicts: Verdict) -> TierReport:
    windows = [
        TierWindow("orders", BEGIN + n * 60_000, {"producer": 5, "log": 1200, "lake": n}, verdict, (f"why {n} <",))
        for n, verdict in enumerate(verdicts)
    ]
    return TierReport(windows=windows, window_ms=60_000, notes=["a note &"])


def verdict(*found: AuditFacts, checked: bool = True) -> tuple[str, str]:
    return facts(*found, checked=checked).verdict()


def facts(*found: AuditFacts, checked: bool = True) -> Facts:
    pipeline = load_text(
        "name: a\nbootstrap.servers: b:1\nlake: c\nflows:\n  d: {kind: ingest, topics: e}\n", Path("/"), "a.yaml", {}
    )
    nothing = Status(alive=False, run=None, flows=[])
    return Facts(
        pipeline=pipeline,
        status=nothing,
        now_ms=0,
        begin_ms=0,
        end_ms=0,
        runs=[],
        flows=[],
        audits=list(found),
        checked=checked,
    )


def flow_facts(state: FlowState) -> FlowFacts:
    flow = facts().pipeline.flows["d"]
    return FlowFacts(flow=flow, state=state, samples=[], marks=[], tables=[])


def test_a_balanced_flow_is_a_row_for_each_partition() -> None:
    made = audit(AuditFacts(flow="d", report=report(partition(records=200, rows=200))))
    cells = ("3", "100 … 299", "1,005", "200", "200", "0", "0", "0")
    assert "<td>orders&lt;b&gt;</td>" + "".join(f'<td class="num">{cell}</td>' for cell in cells) in made
    assert '<span class="badge good">balanced</span>' in made
    assert "<li" not in made


def test_missing_and_doubled_ranges_are_named() -> None:
    bad = partition(records=200, rows=190, missing=12, doubled=2)
    bad.tally.spans["missing"].append(Span("orders<b>", 3, 120, 131, 0))
    bad.tally.spans["doubled"].append(Span("orders<b>", 3, 140, 141, 2))
    bad.tally.span_counts.update(missing=1, doubled=1)
    made = audit(AuditFacts(flow="d", report=report(bad)))
    assert '<span class="badge bad">does not balance</span>' in made
    assert '<td class="num bad">12</td><td class="num bad">2</td><td class="num">0</td>' in made
    assert '<li class="bad">orders&lt;b&gt;-3: 120..131 missing (12)</li>' in made
    assert '<li class="bad">orders&lt;b&gt;-3: 140..141 doubled (2)</li>' in made


def test_a_flow_with_several_outlets_has_a_column_for_each_and_their_sum() -> None:
    one = partition(records=200, rows=200, by_outlet=[180, 20])
    made = audit(AuditFacts(flow="d", report=replace(report(one), outlets=("lake", "dead letters"))))
    heads = ("Behind", "Records", "Lake", "Dead letters", "Sum", "Missing")
    assert "".join(f'<th class="num">{head}</th>' for head in heads) in made
    assert "".join(f'<td class="num">{cell}</td>' for cell in ("1,005", "200", "180", "20", "200", "0")) in made


def test_a_flow_that_was_computed_anew_is_its_counts_and_what_is_wrong() -> None:
    counts = {"expected": 1200, "rows": 1199, "missing": 1, "surplus": 0}
    proof = Proof(counts=counts, faults=("missing", "surplus"), examples=("missing: <row>",))
    made = audit(AuditFacts(flow="even", report=proof))
    assert '<span class="badge bad">does not balance</span>' in made
    assert '<td class="num">1,199</td><td class="num bad">1</td><td class="num">0</td>' in made
    assert '<li class="bad">missing: &lt;row&gt;</li>' in made
    unknown = audit(AuditFacts(flow="even", report=Proof(unknown="rand()")))
    assert '<span class="badge warn">unknown</span>' in unknown and "unknown: rand()" in unknown


def test_dead_letters_are_bars_by_reason() -> None:
    reasons = {"not JSON <": 30, "amount < 0": 10}
    one = AuditFacts(flow="d", report=replace(report(partition()), reasons=reasons))
    made = letters(facts(one, AuditFacts(flow="even", report=Proof())))
    assert made is not None and made.count("<h3>") == 1 and "40 letters" in made
    assert made.index("not JSON &lt;") < made.index("amount &lt; 0")
    assert [float(width) for width in re.findall(r'width="([0-9.]+)" height="10" rx="3" class="f2"', made)] == [
        540,
        180,
    ]
    ElementTree.fromstring(made[made.index("<svg") : made.index("</svg>") + 6])
    assert ("40", "dead letters") in tiles(facts(one))
    # Without an audit, what the flow has counted itself.
    state = FlowState(flow="d", kind="ingest", phase="done", written_ms=0, dead={"not JSON": 3})
    counted = replace(facts(checked=False), flows=[flow_facts(state)])
    assert counted.reasons() == {"d": {"not JSON": 3}}
    assert replace(counted, audits=[one]).reasons() == {"d": reasons}
    assert letters(facts(AuditFacts(flow="d", report=report(partition())))) is None
    many = {f"reason {n}": n + 1 for n in range(20)}
    made = letters(facts(AuditFacts(flow="d", report=replace(report(partition()), reasons=many))))
    assert made is not None and made.count('class="f2"') == 12 and "9 other reasons" in made


def test_tiers_are_shown_by_window() -> None:
    made = audit(AuditFacts(flow="d", report=report(partition(), tiers=tiers("balanced", "unknown", "off"))))
    assert made.count('<td class="num">1,200</td>') == 3
    for grade, word in (("good", "balanced"), ("warn", "unknown"), ("bad", "off")):
        assert f'<td><span class="badge {grade}">{word}</span></td>' in made
    assert "why 2 &lt;" in made
    assert "a note &amp;" in made
    assert '<details open="open"><summary>tier by tier: 3 windows of 60 s' in made
    balanced = audit(AuditFacts(flow="d", report=report(partition(), tiers=tiers("balanced"))))
    assert "<details><summary>" in balanced


def test_of_many_windows_those_that_are_wrong_are_shown() -> None:
    many: list[Verdict] = ["off", *(["balanced"] * 100)]  # type: ignore[list-item]
    made = audit(AuditFacts(flow="d", report=report(partition(), tiers=tiers(*many))))
    assert made.count('<span class="badge good">balanced</span></td>') == 59
    assert made.count('<span class="badge bad">off</span></td>') == 1


def test_the_verdict_is_the_worst_of_the_flows() -> None:
    good = AuditFacts(flow="d", report=report(partition()))
    bad = AuditFacts(flow="d", report=report(partition(missing=1)))
    unknown = AuditFacts(flow="d", report=report(partition(), tiers=tiers("unknown")))
    gone = AuditFacts(flow="d", error="no broker")
    assert verdict(good, good) == ("good", "balanced")
    assert verdict(good, unknown) == ("warn", "balanced, with unknown windows")
    assert verdict(good, AuditFacts(flow="e", report=Proof(unknown="rand()"))) == (
        "warn",
        "balanced, as far as it can be proved",
    )
    assert verdict(unknown, AuditFacts(flow="e", report=Proof(counts={"wrong": 1}, faults=("wrong",))))[0] == "bad"
    assert verdict(good, gone) == ("warn", "could not be checked")
    assert verdict(gone, bad) == ("bad", "does not balance")
    assert verdict() == ("warn", "could not be checked")
    assert verdict(checked=False) == ("warn", "not checked")
