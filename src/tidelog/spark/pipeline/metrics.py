"""What a run counts, in Prometheus' text format, and a small server for it beside the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from typing import Any, Final

from tidelog.spark.pipeline.meters import BOUNDS_S, Meter
from tidelog.spark.pipeline.status import lag_of

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_FAMILIES: Final = (
    ("running", "gauge", "1 while the flow's query runs."),
    ("batch", "gauge", "The last batch that is done."),
    ("batches_total", "counter", "Batches that this run has done."),
    ("idle_total", "counter", "Looks at the log that found nothing new; Spark tells of one in ten seconds."),
    ("read_rows_total", "counter", "Rows that the flow's query has read in this run."),
    ("rows_total", "counter", "Rows that this run has added; of an aggregate, all rows it has seen."),
    ("rows_per_second", "gauge", "Rows of the last batch by the time it took."),
    ("batch_seconds", "gauge", "How long the last batch took."),
    ("batch_duration_seconds", "histogram", "How long the batches of this run took."),
    ("lag_records", "gauge", "Records behind the last batch."),
    ("lag_seconds", "gauge", "Age of the newest record that the flow has read, 0 when there are none behind it."),
    ("late_rows_total", "counter", "Rows in the table of late rows."),
    ("dead_letters_total", "counter", "Dead letters by reason, since the flow's first batch."),
    ("retrying_records", "gauge", "Records that wait for another attempt."),
    ("aside_rows_total", "counter", "Rows that went elsewhere than to the flow's own table, such as duplicates."),
    ("watermark_timestamp_seconds", "gauge", "The watermark of a flow that has one."),
    ("failures", "gauge", "Failures in a row."),
    ("restarts_total", "counter", "Starts after a failure."),
    ("heard_timestamp_seconds", "gauge", "When Spark last told of the flow, with new data or without."),
)


def exposition(name: str, meters: Mapping[str, Meter], now_ms: int) -> str:
    lines = []
    values = {flow: _values(meter, now_ms) for flow, meter in meters.items()}
    for family, kind, text in _FAMILIES:
        metric = f"tidelog_flow_{family}"
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} {kind}"]
        for flow, meter in meters.items():
            if meter.state is None:
                continue  # the run has not come to it yet
            labels = f'pipeline="{name}",flow="{flow}",kind="{meter.state.kind}"'
            if kind == "histogram":
                lines += _histogram(metric, labels, meter)
            elif family == "aside_rows_total":
                lines += [f'{metric}{{{labels},to="{to}"}} {rows}' for to, rows in meter.state.aside.items()]
            elif family == "dead_letters_total":
                dead = meter.state.dead or {}
                lines += [f'{metric}{{{labels},reason="{reason}"}} {count}' for reason, count in sorted(dead.items())]
            elif (value := values[flow].get(family)) is not None:
                lines.append(f"{metric}{{{labels}}} {value}")
    return "\n".join(lines) + "\n"


def _histogram(metric: str, labels: str, meter: Meter) -> Iterator[str]:
    counts = accumulate(meter.durations)
    for bound, count in zip([*BOUNDS_S, "+Inf"], counts, strict=True):
        yield f'{metric}_bucket{{{labels},le="{bound}"}} {count}'
    yield f"{metric}_sum{{{labels}}} {meter.busy_ms / 1000}"
    yield f"{metric}_count{{{labels}}} {meter.batches}"


def _values(meter: Meter, now_ms: int) -> dict[str, float | int | None]:
    state, progress = meter.state, meter.progress
    found: dict[str, float | int | None] = {
        "batches_total": meter.batches,
        "idle_total": meter.idles,
        "read_rows_total": meter.rows,
        "heard_timestamp_seconds": None if meter.heard_ms is None else meter.heard_ms / 1000,
    }
    if state is not None:
        found["running"] = int(state.phase == "running")
        found["rows_total"] = state.rows
        found["late_rows_total"] = state.late
        found["retrying_records"] = state.retrying
        found["watermark_timestamp_seconds"] = None if state.watermark_ms is None else state.watermark_ms / 1000
        found["failures"] = state.failures
        found["restarts_total"] = state.restarts
    if progress is not None:
        lag = lag_of(progress, now_ms)
        found["batch"] = progress.batch
        found["rows_per_second"] = progress.processed_rows_per_s
        found["batch_seconds"] = progress.duration_ms / 1000
        found["lag_records"] = progress.lag_records
        found["lag_seconds"] = None if lag is None else lag / 1000
    return found


class MetricsServer:
    """GET /metrics; anything else is 404. `port` is the one it got, where 0 was asked for."""

    def __init__(self, host: str, port: int, text: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path != "/metrics":
                    self.send_error(404)
                    return
                body = text().encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass  # a line per scrape helps nobody

        self._server = ThreadingHTTPServer((host, port), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
