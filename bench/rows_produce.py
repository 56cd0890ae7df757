"""Rows of the producer: sizes, the Java client's defaults, synced mode, and our curves over partitions and codecs."""

from __future__ import annotations

import os
from typing import Any

from bench import frames, topics
from bench.generator import replay
from bench.lab import Meter, Topic, client_figures
from bench.row import APACHE, SYNCED, TIDELOG, Figures, Row, Run, Side, at_least, at_most

ACKS_1 = {"acks": "1", "enable.idempotence": "false"}
ACKS_ALL = {"acks": "all", "enable.idempotence": "false"}
DEFAULTS: dict[str, str] = {}
RATE_AND_CPU = ("records_per_s", "mb_per_s", "user_s_per_gb", "system_s_per_gb", "p99_ms", "client_cores")


def load(run: Run, topic: Topic, size: int, properties: dict[str, str], *, compressible: bool = False) -> Figures:
    """Fill a topic as fast as the client can: Java's where it is, else ready-made batches of the same size."""
    records_max = max(1000, run.bytes // size)
    broker = topic.broker
    os.sync()
    disk_before = topics.disk_bytes(broker.data, topic.name)
    meter = Meter(broker.pid)
    if run.lab.no_java is None:
        found = run.lab.java.call(
            "produce",
            bootstrap=broker.address,
            topic=topic.name,
            size=size,
            compressible=compressible,
            records_max=records_max,
            seconds_max=run.seconds,
            properties=properties,
        )
    else:
        found = _replayed(run, topic, size, records_max, properties)
    figures = meter.figures(seconds=found["seconds"], records=found["records"], data_bytes=found["records"] * size)
    disk_bytes = topics.disk_bytes(broker.data, topic.name) - disk_before
    figures["disk_bytes_per_record"] = disk_bytes / found["records"]
    return figures | client_figures(found)


def _replayed(run: Run, topic: Topic, size: int, records_max: int, properties: dict[str, str]) -> dict[str, Any]:
    acks = 1 if properties.get("acks") == "1" else -1
    made = frames.produce(topic.id, range(topic.partitions), size, acks=acks)
    requests = max(1, records_max // made.records_each)
    found = replay(topic.broker.address, made, depth=5, seconds=run.seconds, requests=requests)
    return found | {"records": found["requests"] * made.records_each}


def _produce(run: Run, size: int, properties: dict[str, str], partitions: int = 1) -> Figures:
    with Topic(run.lab, run.lab.broker(run.side.node), partitions) as topic:
        return load(run, topic, size, properties)


def _sized(size: int) -> Row:
    label = {100: "100", 1000: "1k", 10_000: "10k"}[size]
    return Row(
        name=f"produce-{label}",
        title=f"produce, {size:,} B, acks=1",
        measure=lambda run: _produce(run, size, ACKS_1),
        client="java or generator",
        shows=(*RATE_AND_CPU, "disk_bytes_per_record"),
        targets=(
            at_least("records_per_s", 1.0, 1.3),
            at_most("user_us_per_record", 0.4, 0.3),
            at_most("total_us_per_record", 0.8, 0.6),
        ),
        seconds_per_gb={100: 22.0, 1000: 7.0, 10_000: 5.0}[size],
    )


PLAIN = Side("tidelog, not idempotent", "tidelog")


def _defaults(run: Run) -> Figures:
    return _produce(run, 1000, ACKS_ALL if run.side is PLAIN else DEFAULTS)


def _keep_topic(run: Run) -> None:
    """For all runs: a thousand partitions take longer to make and to remove than to fill."""
    run.kept["topic"] = Topic(run.lab, run.lab.broker(run.side.node), int(run.point)).__enter__()


def _synced_prepare(run: Run) -> None:
    if int(run.point) >= 1000:
        _keep_topic(run)


def _synced(run: Run) -> Figures:
    if topic := run.kept.get("topic"):
        return load(run, topic, 1000, DEFAULTS)
    return _produce(run, 1000, DEFAULTS, int(run.point))


def _synced_finish(run: Run) -> None:
    if topic := run.kept.get("topic"):
        topic.__exit__(None, None, None)


def _many(run: Run) -> Figures:
    return load(run, run.kept["topic"], 1000, ACKS_1)


def _many_finish(run: Run) -> None:
    run.lab.end(run.side.node)


def _compressed(run: Run) -> Figures:
    with Topic(run.lab, run.lab.broker(run.side.node)) as topic:
        return load(run, topic, 1000, ACKS_1 | {"compression.type": run.point}, compressible=True)


OWN_CURVE: dict[str, Any] = {"runs_max": 3, "warm_ups_max": 1, "share": 0.25}

ROWS = (
    _sized(100),
    _sized(1000),
    _sized(10_000),
    Row(
        name="defaults-1k",
        title="produce, 1,000 B, the Java client's defaults",
        measure=_defaults,
        client="java or generator",
        sides=(TIDELOG, APACHE, PLAIN),
        shows=("records_per_s", "mb_per_s", "user_us_per_record", "system_us_per_record", "p99_ms", "client_cores"),
        targets=(
            at_least("records_per_s", 1.0, 1.2),
            at_most("user_us_per_record", 1.10, 1.05, over=PLAIN.label),
        ),
    ),
    Row(
        name="synced",
        title="produce, 1,000 B, all defaults: ours synced, Apache's not",
        prepare=_synced_prepare,
        measure=_synced,
        client="java or generator",
        finish=_synced_finish,
        sides=(SYNCED, APACHE),
        points=("1", "100", "1000"),
        point_is="partitions",
        shows=("records_per_s", "p50_ms", "p99_ms", "user_s_per_gb", "system_s_per_gb"),
        targets=tuple(at_least("records_per_s", None, 0.7, point=point) for point in ("1", "100", "1000")),
        seconds_per_gb=9.0,
        overhead_s=2.0,
    ),
    Row(
        name="partitions",
        title="ours over partitions: produce, 1,000 B, acks=1",
        measure=_many,
        client="java or generator",
        prepare=_keep_topic,
        finish=_many_finish,
        sides=(Side("tidelog", "many"),),
        points=("1", "10", "100", "1000", "10000"),
        point_is="partitions",
        shows=("records_per_s", "user_us_per_record", "system_us_per_record", "p99_ms", "disk_bytes_per_record"),
        overhead_s=1.0,
        **OWN_CURVE,
    ),
    Row(
        name="compression",
        title="ours with compression: produce, 1,000 B of JSON lines, acks=1",
        measure=_compressed,
        sides=(TIDELOG,),
        points=("none", "gzip", "snappy", "lz4", "zstd"),
        shows=("records_per_s", "user_us_per_record", "system_us_per_record", "disk_bytes_per_record"),
        client="java",
        seconds_per_gb=14.0,
        **OWN_CURVE,
    ),
)
