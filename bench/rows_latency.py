"""Rows of small requests and of waiting: the curve over connections, the ping, and end to end at a steady rate."""

from __future__ import annotations

import os

from bench import frames
from bench.generator import replay
from bench.lab import Meter, Topic, client_figures
from bench.row import APACHE, SYNCED, Figures, Row, Run, at_least, at_most

POINTS = ("1", "10", "50", "200", "1000")
PARTITIONS = 10
"""Connection c writes to partition c modulo this."""
RATE = 20_000


def _make(run: Run, partitions: int) -> None:
    """One topic for all runs: they write little, and each is measured from a warm start."""
    run.kept["topic"] = Topic(run.lab, run.lab.broker(run.side.node), partitions).__enter__()


def _remove(run: Run) -> None:
    if topic := run.kept.get("topic"):
        topic.__exit__(None, None, None)


def _requests(run: Run, acks: int = 1) -> Figures:
    """One 100 B record per request, the next one as soon as the last is answered."""
    topic: Topic = run.kept["topic"]
    broker = topic.broker
    made = frames.produce(topic.id, range(topic.partitions), 100, count=1, acks=acks)
    os.sync()
    meter = Meter(broker.pid)
    connections = int(run.point or 1)
    found = replay(broker.address, made, connections=connections, start=1, step=topic.partitions, seconds=run.seconds)
    requests = found["requests"]
    figures = meter.figures(seconds=found["seconds"], records=requests, data_bytes=requests * 100)
    return figures | client_figures(found)


def _end_to_end(run: Run) -> Figures:
    broker = run.lab.broker(run.side.node)
    with Topic(run.lab, broker) as topic:
        meter = Meter(broker.pid)
        found = run.lab.java.call(
            "end_to_end",
            bootstrap=broker.address,
            topic=topic.name,
            rate=RATE,
            size=100,
            seconds_max=run.seconds,
            # A producer that lingers would measure its own patience: five of the milliseconds would be the client's.
            properties={"acks": "1", "enable.idempotence": "false", "linger.ms": "0"},
            consumer_properties={},
        )
        figures = meter.figures(seconds=found["seconds"], records=found["records"], data_bytes=found["records"] * 100)
        return figures | client_figures(found)


CPU = ("user_us_per_record", "system_us_per_record")

ROWS = (
    Row(
        name="connections",
        title="one 100 B record per request, acks=1",
        prepare=lambda run: _make(run, PARTITIONS),
        measure=_requests,
        finish=_remove,
        points=POINTS,
        point_is="connections",
        shows=("records_per_s", "p50_ms", "p99_ms", *CPU, "client_cores"),
        targets=(
            *(at_least("records_per_s", 0.7, 1.0, point=point) for point in POINTS),
            at_most("p99_ms", 1.5, 1.0, point="200"),
        ),
        by_seconds=True,
        overhead_s=0.2,
    ),
    Row(
        name="ping",
        title="single-record ping, acks=1",
        prepare=lambda run: _make(run, 1),
        measure=_requests,
        finish=_remove,
        shows=("p50_ms", "p99_ms", "p999_ms", "records_per_s", *CPU),
        targets=(at_most("p50_ms", 0.9, 0.7), at_most("p99_ms", 1.0, 0.5)),
        by_seconds=True,
        overhead_s=0.2,
    ),
    Row(
        name="ping-synced",
        title="single-record ping, acks=all: ours synced, Apache's not",
        prepare=lambda run: _make(run, 1),
        measure=lambda run: _requests(run, acks=-1),
        finish=_remove,
        sides=(SYNCED, APACHE),
        shows=("p50_ms", "p99_ms", "p999_ms", "records_per_s", *CPU),
        by_seconds=True,
        overhead_s=0.2,
        share=0.3,
    ),
    Row(
        name="end-to-end",
        title=f"end to end at {RATE:,} records of 100 B a second",
        measure=_end_to_end,
        shows=("p50_ms", "p99_ms", "p999_ms", *CPU, "client_cores"),
        targets=(at_most("p50_ms", 1.0, 0.5), at_most("p99_ms", 1.0, 0.5), at_most("p999_ms", 1.0, 0.5)),
        client="java",
        by_seconds=True,
        overhead_s=0.2,
    ),
)
