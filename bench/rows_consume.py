"""Rows of the consumer: raw fetches that cost the client nothing, and the Java consumer for a second opinion."""

from __future__ import annotations

from bench import frames
from bench.generator import replay
from bench.lab import Meter, Topic, client_figures
from bench.row import Figures, Row, Run, Target, at_least, at_most

SHOWS = ("mb_per_s", "records_per_s", "user_s_per_gb", "system_s_per_gb", "client_cores")
TIMES = 4
"""A fetch is so much cheaper than a produce that one run reads the topic's bytes several times over."""


def _fill(run: Run, size: int) -> None:
    """A topic of equal batches, so that the offset of every fetch is known beforehand."""
    topic = Topic(run.lab, run.lab.broker(run.side.node)).__enter__()
    run.kept["topic"] = topic
    made = frames.produce(topic.id, (0,), size)
    batches = max(64, run.bytes // (made.records_each * size))
    filled = replay(topic.broker.address, made, depth=5, seconds=120, requests=batches)
    batch, records = frames.batch_of(size)
    run.kept["records"] = records * filled["requests"]
    run.kept["fetches"] = frames.fetch(topic.id, len(batch), records, filled["requests"])
    run.kept["bytes_per_record"] = len(batch) / records


def _empty(run: Run) -> None:
    if topic := run.kept.get("topic"):
        topic.__exit__(None, None, None)


def _fetch(run: Run) -> Figures:
    """Each consumer is a connection that asks for the next MiB as soon as it has the last one."""
    made: frames.Frames = run.kept["fetches"]
    broker = run.lab.broker(run.side.node)
    meter = Meter(broker.pid)
    requests = max(int(run.point), run.bytes * TIMES // frames.FETCH_BYTES)
    found = replay(broker.address, made, connections=int(run.point), seconds=run.seconds, requests=requests)
    records = round(found["bytes_in"] / run.kept["bytes_per_record"])
    figures = meter.figures(seconds=found["seconds"], records=records, data_bytes=found["bytes_in"])
    return figures | client_figures(found)


def _java(run: Run, size: int) -> Figures:
    broker = run.lab.broker(run.side.node)
    meter = Meter(broker.pid)
    found = run.lab.java.call(
        "consume",
        bootstrap=broker.address,
        topic=run.kept["topic"].name,
        consumers=1,
        records_max=min(run.kept["records"], run.bytes // size),
        seconds_max=run.seconds,
        consumer_properties={},
    )
    figures = meter.figures(seconds=found["seconds"], records=found["records"], data_bytes=found["bytes"])
    return figures | client_figures(found)


def _raw(size: int) -> Row:
    counts = ("1", "5", "10")
    targets = [target for point in counts for target in _at(point)]
    flat = at_most("total_s_per_gb", 1.2, 1.1, point="10", over="tidelog", over_point="1")
    return Row(
        name=f"consume-{'1k' if size == 1000 else size}",
        title=f"consume, {size:,} B",
        prepare=lambda run: _fill(run, size),
        measure=_fetch,
        finish=_empty,
        points=counts,
        point_is="consumers",
        shows=SHOWS,
        targets=(*targets, flat),
        seconds_per_gb=4.0,
        overhead_s=0.5,
    )


def _at(point: str) -> tuple[Target, ...]:
    return (
        at_least("mb_per_s", 1.0, None, point=point),
        at_most("user_s_per_gb", 0.4, None, point=point),
        at_most("total_s_per_gb", None, 0.7, point=point),
    )


ROWS = (
    _raw(100),
    _raw(1000),
    Row(
        name="consume-java-1k",
        title="consume, 1,000 B, one Java consumer",
        prepare=lambda run: _fill(run, 1000),
        measure=lambda run: _java(run, 1000),
        finish=_empty,
        shows=SHOWS,
        client="java",
        seconds_per_gb=4.0,
        overhead_s=0.5,
    ),
)
