"""`./dev bench spark-sink`: rows a second out of Spark into a topic, exactly once beside at least once.

One frame lies in Spark's memory; both ways write it in turn, on the same two cores, which the broker shares."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from bench import topics
from bench.cpu import cpu_of, stolen_s
from bench.lab import page_cache
from bench.tidelog_node import TidelogNode
from tidelog.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
TASKS = 4
WAYS = ("at_least_once", "exactly_once")
AIM = 0.7
"""Exactly once against at least once."""


class Write(NamedTuple):
    seconds: float
    rows_per_s: float
    broker_cpu_s: float
    stolen_cores: float


def run_sink(sizes: dict[int, int], *, runs: int, warm_ups: int, codec: str, path: Path | None) -> int:
    results: dict[str, list[Write]] = {}
    with TemporaryDirectory(prefix="tidelog-bench-") as text, _node(Path(text)) as node:
        spark = local_session("bench", **{"spark.driver.memory": "2g"})
        try:
            for size, rows in sizes.items():
                frame = _frame(spark, size, rows)
                for run in range(-warm_ups, runs):
                    for way in WAYS if run % 2 == 0 else WAYS[::-1]:
                        found = _write(frame, rows, node, size, run + warm_ups, way, codec)
                        word = f"run {run + 1}/{runs}" if run >= 0 else "warm-up"
                        print(f"{size:,} B, {way}, {word}: {found.rows_per_s:,.0f} rows/s", flush=True)
                        if run >= 0:
                            results.setdefault(f"{size:,} B, {way}", []).append(found)
                frame.unpersist()
        finally:
            spark.stop()
    print(render(results))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({key: [one._asdict() for one in found] for key, found in results.items()}, indent=1))
    return 0


def _node(home: Path) -> TidelogNode:
    return TidelogNode(home / "node", properties=page_cache())


def _frame(spark: SparkSession, size: int, rows: int) -> DataFrame:
    """In memory; half of each value repeats, as in most logs."""
    half = size // 8 * 4
    value = f"concat(repeat('tide', {half // 4}), rpad(cast(id as string), {size - half}, '.'))"
    columns = ("cast(id % 1000 as string) key", f"cast({value} as binary) value")
    frame = spark.range(0, rows, 1, TASKS).selectExpr(*columns).cache()
    assert frame.count() == rows
    return frame


def _write(frame: DataFrame, rows: int, node: TidelogNode, size: int, epoch: int, way: str, codec: str) -> Write:
    assert node.process is not None
    address, broker, topic = node.bootstrap_servers, node.process.pid, f"{way}-{size}-{epoch}"
    topics.create(address, topic, PARTITIONS)
    options = {
        "kafka.bootstrap.servers": address,
        "topic": topic,
        "delivery": way,
        "kafka.compression.type": codec,
    }
    if way == "exactly_once":
        # With a decision, as an epoch of a stream has it: the versions are the epochs of one sink.
        options |= {"txnAppId": f"bench-{size}", "txnVersion": str(epoch)}
    cpu, stolen, started = cpu_of(broker), stolen_s(), time.monotonic()
    frame.write.format("tidelog").mode("append").options(**options).save()
    took = time.monotonic() - started
    return Write(took, rows / took, sum(cpu_of(broker).since(cpu)), (stolen_s() - stolen) / max(took, 0.01))


def render(results: dict[str, list[Write]]) -> str:
    lines = [
        "",
        f"{'':28} {'rows/s':>12} {'against at least once':>22} {'at least':>9} {'broker CPU s':>13} {'stolen':>7}",
    ]
    for key, found in results.items():
        rate, cpu_s, stolen = (statistics.median(one[place] for one in found) for place in (1, 2, 3))
        size, _, way = key.rpartition(", ")
        other = results.get(f"{size}, {WAYS[0]}") if way != WAYS[0] else None
        ratio = f"{rate / statistics.median(one.rows_per_s for one in other):.2f} x" if other else ""
        bound = f"{AIM:.1f} x" if other else ""
        lines.append(f"{key:28} {rate:12,.0f} {ratio:>22} {bound:>9} {cpu_s:13.2f} {stolen:7.2f}")
    return "\n".join(lines)
