"""`./dev bench spark --latency`: how long after its produce() a record is a row that readers of the lake table see.

A real `tidelog pipeline run` with small triggers, on a node in its default mode (synced). Both ends come from what is
there afterwards: the record's timestamp, which the client takes at produce(), and the time of the table's commit that
brought its file. So nothing that watches takes part."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer

from bench import topics
from bench.cpu import stolen_s
from bench.tidelog_node import TidelogNode

TOPIC = "latency"
PARTITIONS = 4
_PIPELINE = """\
name: latency
bootstrap.servers: {servers}
lake: {home}/lake-{trigger}
work: {home}/work-{trigger}
flows:
  rows:
    kind: ingest
    topics: {topic}
    trigger: {trigger}
    maintenance: {{batches: 0}}
"""
_STARTS_WITHIN_S = 180.0
_LANDS_WITHIN_S = 120.0
_POLL_S = 0.05


class Latency(NamedTuple):
    trigger: str
    rows: int
    commits: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    stolen_cores: float


def commits_of(table: Path) -> list[tuple[int, list[Path]]]:
    """When each commit was there, in ms, and the files that it added."""
    found = []
    for entry in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        files = [table / action["add"]["path"] for action in actions if "add" in action]
        found.append((entry.stat().st_mtime_ns // 1_000_000, files))
    return found


def waits_of(table: Path, begin_ms: int) -> tuple[list[int], int]:
    """Sorted, in ms, of the records from then on; and how many commits brought them."""
    waits: list[int] = []
    commits = 0
    for committed_ms, files in commits_of(table):
        before = len(waits)
        for file in files:
            times = pq.ParquetFile(file).read(["timestamp"])["timestamp"].cast(pa.timestamp("ms", "UTC")).cast("int64")
            waits += [committed_ms - made for made in times.to_pylist() if made >= begin_ms]
        commits += len(waits) > before
    return sorted(waits), commits


def run_latency(triggers: Sequence[str], *, rate: float, seconds: float, warm_s: float) -> int:
    found = []
    with TemporaryDirectory(prefix="tidelog-bench-") as home, TidelogNode(Path(home) / "node") as node:
        for trigger in triggers:
            topic = f"{TOPIC}-{trigger}"
            topics.create(node.bootstrap_servers, topic, PARTITIONS)
            found.append(_measure(node.bootstrap_servers, Path(home), topic, trigger, rate, seconds, warm_s))
            print(f"{time.strftime('%H:%M:%S')} {found[-1]}", flush=True)
    print(render(found, rate))
    return 0


def render(found: Sequence[Latency], rate: float) -> str:
    lines = ["", f"{rate:g} records/s; from produce() to the table's commit, ms"]
    lines.append(f"{'trigger':10} {'rows':>8} {'commits':>8} {'p50':>8} {'p99':>8} {'max':>8} {'stolen':>7}")
    lines += [
        f"{one.trigger:10} {one.rows:8,} {one.commits:8,} {one.p50_ms:8,.0f} {one.p99_ms:8,.0f} {one.max_ms:8,.0f} "
        f"{one.stolen_cores:7.2f}"
        for one in found
    ]
    return "\n".join(lines)


def _measure(servers: str, home: Path, topic: str, trigger: str, rate: float, seconds: float, warm_s: float) -> Latency:
    table = home / f"lake-{trigger}" / "rows"
    file = home / f"{trigger}.yaml"
    file.write_text(_PIPELINE.format(servers=servers, home=home, topic=topic, trigger=trigger))
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "log_level": 0})
    with _pipeline(file, home / f"{trigger}.log") as process:
        producer.produce(topic, b"first")
        producer.flush()
        _until(lambda: len(commits_of(table)) > 0, process, _STARTS_WITHIN_S)
        _produce(producer, topic, rate, warm_s)
        begin_ms, began_s, stolen = int(time.time() * 1000), time.monotonic(), stolen_s()
        made = _produce(producer, topic, rate, seconds)
        stolen_cores = (stolen_s() - stolen) / (time.monotonic() - began_s)
        _until(lambda: len(waits_of(table, begin_ms)[0]) >= made, process, _LANDS_WITHIN_S)
        waits, commits = waits_of(table, begin_ms)
    p50, p99 = (waits[min(int(len(waits) * part), len(waits) - 1)] for part in (0.5, 0.99))
    return Latency(trigger, len(waits), commits, p50, p99, waits[-1], stolen_cores)


def _produce(producer: Producer, topic: str, rate: float, seconds: float) -> int:
    """Steadily, each when it is due; a record that is late is stamped when it is sent. How many."""
    count, began_s = int(rate * seconds), time.monotonic()
    for number in range(count):
        while (early_s := began_s + number / rate - time.monotonic()) > 0:
            producer.poll(min(early_s, 0.01))
        producer.produce(topic, b"x" * 200, b"%d" % (number % 100))
    producer.flush()
    return count


@contextmanager
def _pipeline(file: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        command = [sys.executable, "-m", "tidelog", "pipeline", "run", str(file)]
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield process
        except BaseException:
            print(log.read_text()[-3000:], file=sys.stderr)
            raise
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _until(is_so: object, process: subprocess.Popen[bytes], within_s: float) -> None:
    assert callable(is_so)
    deadline_s = time.monotonic() + within_s
    while not is_so():
        if process.poll() is not None:
            raise RuntimeError(f"the pipeline ended with exit code {process.returncode}")
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"the pipeline did not get there within {within_s:g} s")
        time.sleep(_POLL_S)
