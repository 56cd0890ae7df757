"""`./dev bench spark`: rows a second from a topic into Spark, by our data source, from the broker and from its segment
files, and by Spark's own JVM connector.

One session has all: they take turns on the same topics, the same options and the same two cores, which the broker
(Tidelog, page-cache mode) shares. CRC, headers and compression are on. The JVM connector comes from Maven; without it
our columns stand alone."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Producer

from bench import topics
from bench.cpu import cpu_of, own_cpu_of, stolen_s
from bench.lab import page_cache
from bench.tidelog_node import TidelogNode
from tidelog.spark.session import local_session
from tools import apache

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
_NOISE_BYTES = 16 << 20
_NOISE_STEP = 70_001
"""Records near each other share nothing: compression looks back 64 KiB."""
CODEC = "lz4"
SIDES = {"tidelog": "tidelog", "segments": "tidelog", "jvm": "kafka"}
"""Our names and Spark's for the format."""
SEGMENTS_AIM = 1.2
"""Rows a second from files against those from the broker, at least."""


class Aim(NamedTuple):
    what: str
    ratio: float
    """Rows a second against the JVM connector, at least."""


WAYS = {
    "batch": Aim("batch read to noop", 1.5),
    "stream": Aim("availableNow to noop", 1.0),
    "parquet": Aim("availableNow to Parquet", 1.3),
}


class Read(NamedTuple):
    seconds: float
    rows_per_s: float
    broker_cpu_s: float
    stolen_cores: float
    jvm_cpu_s: float
    python_cpu_s: float
    """Of what the JVM has started: planners and workers."""

    @property
    def cpu_s(self) -> float:
        return self.broker_cpu_s + self.jvm_cpu_s + self.python_cpu_s


class Bench:
    def __init__(self, spark: SparkSession, node: TidelogNode, home: Path) -> None:
        assert node.process is not None
        self.spark = spark
        self.address = node.bootstrap_servers
        self.pid = node.process.pid
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self.jvm = int(jvm.java.lang.ProcessHandle.current().pid())
        self.home = home
        self.data = node.directory
        self.number = 0

    def read(self, side: str, way: str, topic: str, rows: int) -> Read:
        """One reading of the whole topic."""
        options = {
            "kafka.bootstrap.servers": self.address,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
        }
        if side == "segments":
            options |= {"read": "segments", "logDirs": str(self.data)}
        self.number += 1
        where = self.home / f"read-{self.number}"
        work: dict[str, Callable[[], None]] = {
            "batch": lambda: _batch(self.spark.read.format(SIDES[side]).options(**options).load()),
            "stream": lambda: _stream(self.spark.readStream.format(SIDES[side]).options(**options).load(), where, None),
            "parquet": lambda: _stream(
                self.spark.readStream.format(SIDES[side]).options(**options).load(), where, where / "table"
            ),
        }
        cpu, stolen, started = self._cpu_s(), stolen_s(), time.monotonic()
        work[way]()
        took = time.monotonic() - started
        broker, jvm, python = (now - before for now, before in zip(self._cpu_s(), cpu, strict=True))
        found = Read(took, rows / took, broker, (stolen_s() - stolen) / max(took, 0.01), jvm, python)
        if way == "parquet":
            landed = self.spark.read.parquet(str(where / "table")).count()
            assert landed == rows, f"{side}: {landed} of {rows} rows are in the table"
        shutil.rmtree(where, ignore_errors=True)
        return found

    def _cpu_s(self) -> tuple[float, float, float]:
        """Of the broker, the JVM, and the Python processes of Spark, up to now."""
        jvm = sum(own_cpu_of(self.jvm))
        return sum(cpu_of(self.pid)), jvm, sum(cpu_of(self.jvm)) - jvm


def _batch(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _stream(frame: DataFrame, where: Path, table: Path | None) -> None:
    writer = frame.writeStream.option("checkpointLocation", str(where / "checkpoint")).trigger(availableNow=True)
    query = writer.format("parquet").start(str(table)) if table else writer.format("noop").start()
    query.awaitTermination()
    if (error := query.exception()) is not None:
        raise error


def connector_jars() -> list[Path]:
    """Spark's own connector, in the mix of versions that works with PySpark 4.3 (none for 4.3 itself is published)."""
    if apache.why_not() is not None:
        return []
    libs = apache.fetch(
        "spark-sql-kafka-4.2.0",
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
        ("org.apache.kafka", "kafka-clients", "3.9.2"),
        ("org.apache.commons", "commons-pool2", "2.13.1"),
        transitive=False,
    )
    return sorted(libs.glob("*.jar"))


def fill(address: str, topic: str, size: int, rows: int) -> None:
    """Half of each value repeats and half is noise, so that lz4 makes half of it, about as of JSON; two headers; four
    partitions in turn."""
    topics.create(address, topic, PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": address,
            "compression.type": CODEC,
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )
    body = b"tide" * (size // 8)
    noise = Random(size).randbytes(_NOISE_BYTES)
    fresh = size - len(body)
    headers = [("source", b"bench"), ("trace", b"0123456789abcdef")]
    for number in range(rows):
        at = number * _NOISE_STEP % (_NOISE_BYTES - fresh)
        value = noise[at : at + fresh] + body
        while True:
            try:
                producer.produce(topic, value, b"%08d" % (number % 1000), number % PARTITIONS, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0, "not all records were taken"


def run_spark(
    sizes: dict[int, int], ways: list[str], *, runs: int, warm_ups: int, sides: str | None, path: Path | None
) -> int:
    jars = connector_jars()
    names = [name for name in SIDES if name != "jvm" or jars]
    names = [name for name in names if sides is None or name in sides.split(",")]
    if not jars:
        print(f"without Spark's own connector: {apache.why_not()}")
    results: dict[str, list[Read]] = {}
    conf = {"spark.jars": ",".join(map(str, jars)), "spark.driver.memory": "2g"}
    with TemporaryDirectory(prefix="tidelog-bench-") as text:
        home = Path(text)
        with TidelogNode(home / "node", properties=page_cache()) as node:
            spark = local_session("bench", **conf)
            try:
                bench = Bench(spark, node, home)
                for size, rows in sizes.items():
                    fill(node.bootstrap_servers, f"bench-{size}", size, rows)
                    for way in ways:
                        _measure(bench, names, way, size, rows, warm_ups, runs, results)
            finally:
                spark.stop()
    print(render(results))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({key: [one._asdict() for one in found] for key, found in results.items()}, indent=1))
    return 0


def _measure(
    bench: Bench,
    names: list[str],
    way: str,
    size: int,
    rows: int,
    warm_ups: int,
    runs: int,
    results: dict[str, list[Read]],
) -> None:
    for run in range(-warm_ups, runs):
        for name in names if run % 2 == 0 else names[::-1]:
            found = bench.read(name, way, f"bench-{size}", rows)
            key = f"{WAYS[way].what}, {size:,} B, {name}"
            word = f"run {run + 1}/{runs}" if run >= 0 else "warm-up"
            print(f"{time.strftime('%H:%M:%S')} {key}, {word}: {found.rows_per_s:,.0f} rows/s", flush=True)
            if run >= 0:
                results.setdefault(key, []).append(found)


def render(results: dict[str, list[Read]]) -> str:
    titles = (
        "rows/s",
        "against the JVM",
        "at least",
        "the broker path",
        "at least",
        "CPU s: all",
        "broker",
        "Python",
        "JVM",
        "stolen",
    )
    widths = (12, 16, 9, 16, 9, 11, 7, 7, 7, 7)
    head = " ".join(f"{title:>{width}}" for title, width in zip(titles, widths, strict=True))
    lines = ["", f"{'':44} {head}"]
    for key, found in results.items():
        start, _, name = key.rpartition(", ")
        aim = next(aim.ratio for aim in WAYS.values() if start.startswith(aim.what))
        cells = [
            f"{_rows_per_s(found):,.0f}",
            *_against(found, results.get(f"{start}, jvm") if name != "jvm" else None, aim),
            *_against(found, results.get(f"{start}, tidelog") if name == "segments" else None, SEGMENTS_AIM),
            f"{statistics.median(one.cpu_s for one in found):.2f}",
            f"{statistics.median(one.broker_cpu_s for one in found):.2f}",
            f"{statistics.median(one.python_cpu_s for one in found):.2f}",
            f"{statistics.median(one.jvm_cpu_s for one in found):.2f}",
            f"{statistics.median(one.stolen_cores for one in found):.2f}",
        ]
        lines.append(f"{key:44} " + " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)))
    return "\n".join(lines)


def _against(found: list[Read], other: list[Read] | None, aim: float) -> tuple[str, str]:
    return (f"{_rows_per_s(found) / _rows_per_s(other):.2f} x", f"{aim:.1f} x") if other else ("", "")


def _rows_per_s(found: list[Read]) -> float:
    return statistics.median(one.rows_per_s for one in found)
