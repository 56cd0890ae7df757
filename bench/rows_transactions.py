"""Rows of the transactional producer: one that commits ten times a second, and the curve over records per transaction.

The time of a commit is that of commitTransaction alone: all its records were acknowledged before."""

from __future__ import annotations

import os

from bench.lab import Meter, Topic, client_figures
from bench.row import APACHE, SYNCED, TIDELOG, Figures, Row, Run, Side, at_least, at_most
from bench.rows_produce import DEFAULTS, load

SIZE = 1000
COMMIT_EVERY_MS = 100
IDEMPOTENT = Side("tidelog, idempotent only", "tidelog")
OURS_SYNCED = Side("tidelog, synced", SYNCED.node)
POINTS = ("1", "10", "100", "1000", "10000")
SHOWS = (
    "records_per_s",
    "commits_per_s",
    "p50_ms",
    "p99_ms",
    "user_us_per_record",
    "system_us_per_record",
    "client_cores",
)


def _transactions(run: Run, topic: Topic, *, records_each: int, every_ms: int) -> Figures:
    broker = topic.broker
    os.sync()
    meter = Meter(broker.pid)
    found = run.lab.java.call(
        "transactions",
        bootstrap=broker.address,
        topic=topic.name,
        size=SIZE,
        compressible=False,
        records_max=max(1000, run.bytes // SIZE),
        records_each=records_each,
        commit_every_ms=every_ms,
        seconds_max=run.seconds,
        properties={"transactional.id": f"bench-{topic.name}"},
    )
    figures = meter.figures(seconds=found["seconds"], records=found["records"], data_bytes=found["records"] * SIZE)
    figures["commits_per_s"] = found["commits"] / found["seconds"]
    return figures | client_figures(found)


def _often(run: Run) -> Figures:
    with Topic(run.lab, run.lab.broker(run.side.node)) as topic:
        if run.side is IDEMPOTENT:
            return load(run, topic, SIZE, DEFAULTS)
        return _transactions(run, topic, records_each=0, every_ms=COMMIT_EVERY_MS)


def _sized(run: Run) -> Figures:
    with Topic(run.lab, run.lab.broker(run.side.node)) as topic:
        return _transactions(run, topic, records_each=int(run.point), every_ms=0)


ROWS = (
    Row(
        name="transactions",
        title=f"produce, 1,000 B, a transaction every {COMMIT_EVERY_MS} ms",
        measure=_often,
        client="java",
        sides=(TIDELOG, APACHE, IDEMPOTENT, OURS_SYNCED),
        shows=SHOWS,
        targets=(
            at_least("records_per_s", 1.0, 1.2),
            at_least("records_per_s", 0.8, None, over=IDEMPOTENT.label),
            at_most("p50_ms", 1.0, None),
            at_most("p99_ms", 1.0, None),
        ),
    ),
    Row(
        name="transaction-sizes",
        title="produce, 1,000 B, so many records in a transaction",
        measure=_sized,
        client="java",
        points=POINTS,
        point_is="records each",
        shows=SHOWS,
        targets=tuple(at_most("p99_ms", 1.0, None, point=point) for point in POINTS),
        by_seconds=True,
    ),
)
