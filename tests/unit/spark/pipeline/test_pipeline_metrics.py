"""Metrics of a run, as Prometheus reads them."""

from __future__ import annotations

from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tidelog.spark.pipeline.meters import BOUNDS_S, Meters
from tidelog.spark.pipeline.metrics import MetricsServer, exposition
from tidelog.spark.pipeline.progress import Progress
from tidelog.spark.pipeline.state import FlowState

NOW = 1_790_000_000_000
A, B = 'pipeline="shop",flow="a",kind="ingest"', 'pipeline="shop",flow="b",kind="aggregate"'


def progress(**changed: object) -> Progress:
    values = {"batch": 0, "at": "t", "rows": 5, "input_rows_per_s": 1.0, "processed_rows_per_s": 2.5}
    values |= {"duration_ms": 1500, "lag_records": 3, "newest_ms": NOW - 4000}
    return Progress(**{**values, **changed})  # type: ignore[arg-type]


ASIDE = {"duplicates": 7, "unmatched": 0}


def two_flows() -> Meters:
    meters = Meters(["a", "b", "c"])
    meters.publish(FlowState(flow="a", kind="ingest", phase="running", written_ms=NOW, rows=5))
    waiting = FlowState(
        flow="b", kind="aggregate", phase="waiting", written_ms=NOW, late=0, watermark_ms=NOW, aside=ASIDE
    )
    meters.publish(waiting)
    return meters


def values(meters: Meters) -> dict[str, str]:
    lines = exposition("shop", meters.read(), NOW).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_values_that_are_not_known_are_left_out_and_zeros_are_not() -> None:
    meters = two_flows()
    meters.batch("a", progress(), NOW)
    found = {name: value for name, value in values(meters).items() if "duration" not in name}
    assert found == {
        f"tidelog_flow_running{{{A}}}": "1",
        f"tidelog_flow_running{{{B}}}": "0",
        f"tidelog_flow_batch{{{A}}}": "0",
        f"tidelog_flow_batches_total{{{A}}}": "1",
        f"tidelog_flow_batches_total{{{B}}}": "0",
        f"tidelog_flow_idle_total{{{A}}}": "0",
        f"tidelog_flow_idle_total{{{B}}}": "0",
        f"tidelog_flow_read_rows_total{{{A}}}": "5",
        f"tidelog_flow_read_rows_total{{{B}}}": "0",
        f"tidelog_flow_rows_total{{{A}}}": "5",
        f"tidelog_flow_rows_per_second{{{A}}}": "2.5",
        f"tidelog_flow_batch_seconds{{{A}}}": "1.5",
        f"tidelog_flow_lag_records{{{A}}}": "3",
        f"tidelog_flow_lag_seconds{{{A}}}": "4.0",
        f"tidelog_flow_late_rows_total{{{B}}}": "0",
        f'tidelog_flow_aside_rows_total{{{B},to="duplicates"}}': "7",
        f'tidelog_flow_aside_rows_total{{{B},to="unmatched"}}': "0",
        f"tidelog_flow_watermark_timestamp_seconds{{{B}}}": str(NOW / 1000),
        f"tidelog_flow_failures{{{A}}}": "0",
        f"tidelog_flow_failures{{{B}}}": "0",
        f"tidelog_flow_restarts_total{{{A}}}": "0",
        f"tidelog_flow_restarts_total{{{B}}}": "0",
        f"tidelog_flow_heard_timestamp_seconds{{{A}}}": str(NOW / 1000),
    }


def test_dead_letters_by_reason_and_records_that_wait() -> None:
    meters = two_flows()
    dead = {"positive": 3, "decode": 2}
    meters.publish(FlowState(flow="a", kind="ingest", phase="running", written_ms=NOW, dead=dead, retrying=7))
    found = {name: value for name, value in values(meters).items() if "dead" in name or "retrying" in name}
    assert found == {
        f'tidelog_flow_dead_letters_total{{{A},reason="decode"}}': "2",
        f'tidelog_flow_dead_letters_total{{{A},reason="positive"}}': "3",
        f"tidelog_flow_retrying_records{{{A}}}": "7",
    }


def test_counters_grow_and_an_idle_look_has_nothing_behind_it() -> None:
    meters = two_flows()
    meters.batch("a", progress(), NOW - 2000)
    meters.batch("a", progress(batch=1, rows=7, duration_ms=100), NOW - 1000)
    meters.idle("a", NOW)
    meters.idle("b", NOW)  # before its first batch
    found = values(meters)
    for name, value in (
        ("batches_total", "2"),
        ("idle_total", "1"),
        ("read_rows_total", "12"),
        ("batch", "1"),
        ("lag_records", "0"),
        ("lag_seconds", "0.0"),
        ("rows_per_second", "0.0"),
        ("heard_timestamp_seconds", str(NOW / 1000)),
        ("batch_duration_seconds_count", "2"),
        ("batch_duration_seconds_sum", "1.6"),
    ):
        assert found[f"tidelog_flow_{name}{{{A}}}"] == value, name
    assert found[f"tidelog_flow_idle_total{{{B}}}"] == "1"
    assert f"tidelog_flow_lag_records{{{B}}}" not in found


def test_buckets_are_cumulative_and_a_bound_belongs_to_its_bucket() -> None:
    meters = two_flows()
    for duration_ms in (100, 101, 2500, 10**9):
        meters.batch("a", progress(duration_ms=duration_ms), NOW)
    buckets = {
        bound: values(meters)[f'tidelog_flow_batch_duration_seconds_bucket{{{A},le="{bound}"}}'] for bound in BOUNDS_S
    }
    assert [buckets[bound] for bound in (0.1, 0.25, 1.0, 2.5, 300.0)] == ["1", "2", "2", "3", "3"]
    assert values(meters)[f'tidelog_flow_batch_duration_seconds_bucket{{{A},le="+Inf"}}'] == "4"


def test_the_server_answers_metrics_and_nothing_else() -> None:
    meters = two_flows()
    server = MetricsServer("127.0.0.1", 0, lambda: exposition("shop", meters.read(), NOW))
    try:
        with urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            assert answer.read().decode() == exposition("shop", meters.read(), NOW)
        with pytest.raises(HTTPError, match="404") as refused:
            urlopen(f"http://127.0.0.1:{server.port}/", timeout=60)
        refused.value.close()
    finally:
        server.close()
