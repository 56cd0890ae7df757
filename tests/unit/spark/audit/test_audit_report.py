"""The text of a report, whole."""

from __future__ import annotations

import json
from collections import Counter

from tidelog.spark.audit.compare import Span, Tally
from tidelog.spark.audit.log import PartitionLog, Stretch
from tidelog.spark.audit.ranges import ranges
from tidelog.spark.audit.report import PartitionReport, Report, Window

HOUR_MS = 3_600_000
BEGIN_MS = 1_789_992_000_000


def part(topic: str, partition: int, end: int, claimed: int = 0, **counts: int) -> PartitionReport:
    stretch = Stretch(
        topic=topic,
        partition=partition,
        log_start=0,
        start=0,
        end=end,
        stable_end=end + 5,
        log_end=end + 5,
        claimed=claimed or end,
    )
    log = PartitionLog(stretch, ranges((0, end)), ranges(), ranges(), Counter())
    return PartitionReport(log, Tally(topic, partition, **counts))


def test_a_balanced_report_is_a_table_and_a_sentence() -> None:
    report = Report(
        partitions=[part("orders", 0, 1200, records=1190, rows=1190), part("payments", 12, 0)],
        windows=[Window("orders", BEGIN_MS, 1190, 1190)],
        window_ms=HOUR_MS,
    )
    assert report.balanced
    assert report.table() == (
        "TOPIC     PARTITION  OFFSETS  BEHIND  RECORDS  ROWS  MISSING  DOUBLED  SURPLUS\n"
        "orders    0          0..1199  5       1190     1190  0        0        0\n"
        "payments  12         -        5       0        0     0        0        0\n"
        "\n"
        "balanced: 1190 records of 2 topics in the table once each, in 1 window of 3600 s"
    )


def test_what_is_wrong_is_named_and_the_rest_counted() -> None:
    bad = part("orders", 0, 200, records=200, rows=187, missing=15, doubled=2, surplus=1, deleted=1)
    bad.tally.spans["missing"] += [Span("orders", 0, 120, 131, 0), *(Span("orders", 0, n, n, 0) for n in (140, 150))]
    bad.tally.span_counts["missing"] = 4
    bad.tally.spans["doubled"].append(Span("orders", 0, 7, 7, 3))
    bad.tally.span_counts["doubled"] = 1
    bad.tally.spans["surplus"].append(Span("orders", 0, 9, 9, 1))
    bad.tally.span_counts["surplus"] = 1
    windows = [Window("orders", BEGIN_MS + n * HOUR_MS, 10, 10 + n) for n in range(5)]
    report = Report(partitions=[bad], windows=windows, window_ms=HOUR_MS, unknown={"gone": "the log has no such topic"})
    assert not report.balanced
    assert report.table(named_lines=3) == (
        "TOPIC   PARTITION  OFFSETS  BEHIND  RECORDS  ROWS  MISSING  DOUBLED  SURPLUS\n"
        "orders  0          0..199   5       200      187   15       2        1\n"
        "\n"
        "orders-0: 120..131 missing (12)\n"
        "orders-0: 140 missing (1)\n"
        "orders-0: 150 missing (1)\n"
        "and 3 more ranges\n"
        "orders-0: not judged: 1 row before the log's start\n"
        "gone: unknown: the log has no such topic\n"
        "\n"
        "TOPIC   WINDOW                RECORDS  ROWS  DIFFERENCE\n"
        "orders  2026-09-21T13:00:00Z  10       11    1\n"
        "orders  2026-09-21T14:00:00Z  10       12    2\n"
        "orders  2026-09-21T15:00:00Z  10       13    3\n"
        "and 1 more window\n"
        "\n"
        "does not balance: 15 missing, 2 doubled, 1 surplus, 4 windows of 5 off, 1 topic unknown"
    )
    assert "orders-0: 7 doubled (2, 3 rows each)" in report.table()
    document = json.loads(json.dumps(report.as_json()))
    assert document["balanced"] is False
    assert document["partitions"][0]["ranges"]["missing"] == {
        "count": 4,
        "first": [{"first": a, "last": b, "rows": 0} for a, b in ((120, 131), (140, 140), (150, 150))],
    }


def test_a_log_that_is_shorter_than_what_was_landed_is_not_balanced() -> None:
    report = Report(partitions=[part("orders", 0, 95, claimed=120, records=95, rows=95)], windows=[], window_ms=HOUR_MS)
    assert not report.balanced
    assert report.table().splitlines()[-3:] == [
        "orders-0: landed up to 119, but the log ends before 100: it has lost its end",
        "",
        "does not balance: the log of 1 partition has lost its end",
    ]


def test_a_topic_that_cannot_be_judged_is_not_balanced() -> None:
    report = Report(partitions=[], windows=[], window_ms=HOUR_MS, unknown={"gone": "the log has no such topic"})
    assert not report.balanced
    assert report.table() == "gone: unknown: the log has no such topic\n\ndoes not balance: 1 topic unknown"


def test_dead_letters_are_told_by_reason() -> None:
    reasons = {"amount < 0": 2, "not JSON": 30, "late": 1}
    report = Report(partitions=[], windows=[], window_ms=HOUR_MS, reasons=reasons)
    assert report.table(named_lines=2).splitlines()[:4] == [
        "DEAD LETTERS  REASON",
        "30            not JSON",
        "2             amount < 0",
        "and 1 more reason",
    ]
    assert report.as_json()["reasons"] == reasons
