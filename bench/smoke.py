"""Half a minute beside Apache Kafka: Java's own perf tools against both, interleaved, after a warm-up of each."""

from __future__ import annotations

import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.cpu import Cpu, cpu_of, private_mb
from bench.tidelog_node import TidelogNode
from tools import apache

_PRODUCED = re.compile(r"^\d+ records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\).* ([\d.]+) ms 99th", re.MULTILINE)


class Round(NamedTuple):
    records_per_s: float
    p99_ms: float
    cpu: Cpu


def run_smoke(seconds: float, record_size: int) -> int:
    reason = apache.why_not()
    if reason is not None:
        print(f"{reason}: without Java and Maven there is nothing to compare with, and no Java client to load with")
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="tidelog-bench-") as home,
        apache.ApacheKafka(Path(home) / "apache", silent=True) as kafka,
        TidelogNode(Path(home) / "tidelog") as tidelog,
    ):
        return _compare({"tidelog": tidelog, "apache": kafka}, seconds, record_size)


def _compare(nodes: dict[str, Any], seconds: float, record_size: int) -> int:
    rounds: dict[str, list[Round]] = {name: [] for name in nodes}
    consumed: dict[str, list[Round]] = {name: [] for name in nodes}
    records = max(20_000, 200_000_000 // (record_size + 200))
    for node in nodes.values():  # warm up
        _produce(node, "warm-up", records // 2, record_size)
    deadline = time.monotonic() + seconds
    number = 0
    while number < 2 or time.monotonic() < deadline:
        number += 1
        for name, node in nodes.items():
            topic = f"smoke-{number}"
            rounds[name].append(_produce(node, topic, records, record_size))
            consumed[name].append(_consume(node, topic, records))
    print(f"{number} interleaved rounds of {records} records of {record_size} bytes, Java clients, acks=1, median:")
    for title, found in (("produce", rounds), ("consume", consumed)):
        ours, theirs = _median(found["tidelog"]), _median(found["apache"])
        print(f"{title:8} tidelog {_show(ours)}")
        print(f"{title:8} apache  {_show(theirs)}")
        ratio = ours.records_per_s / theirs.records_per_s
        user = ours.cpu.user_s / max(theirs.cpu.user_s, 0.01)
        total = sum(ours.cpu) / max(sum(theirs.cpu), 0.01)
        print(f"{title:8} ratio   {ratio:.2f} x records/s, {user:.2f} x user CPU, {total:.2f} x CPU")
    for name, node in nodes.items():
        print(f"memory   {name:8}{private_mb(node.process.pid):7.0f} MB private")
    return 0


def _produce(node: Any, topic: str, records: int, record_size: int) -> Round:
    before = cpu_of(node.process.pid)
    arguments = [
        "--topic",
        topic,
        "--num-records",
        str(records),
        "--record-size",
        str(record_size),
        "--throughput",
        "-1",
    ]
    properties = [f"bootstrap.servers={node.bootstrap_servers}", "acks=1", "enable.idempotence=false", "linger.ms=5"]
    output = _tool("org.apache.kafka.tools.ProducerPerformance", *arguments, "--command-property", *properties)
    match = _PRODUCED.findall(output)
    if not match:
        raise RuntimeError(f"the perf tool printed no result:\n{output}")
    return Round(float(match[-1][0]), float(match[-1][2]), cpu_of(node.process.pid).since(before))


def _consume(node: Any, topic: str, records: int) -> Round:
    before = cpu_of(node.process.pid)
    arguments = ["--bootstrap-server", node.bootstrap_servers, "--topic", topic, "--num-records", str(records)]
    output = _tool("org.apache.kafka.tools.ConsumerPerformance", *arguments, "--hide-header")
    values = output.strip().splitlines()[-1].split(", ")
    return Round(float(values[9]), 0.0, cpu_of(node.process.pid).since(before))


def _tool(main_class: str, *arguments: str) -> str:
    libs = apache.apache_libs()
    command = ["java", "-Xmx512m", "-cp", f"{libs}/*", main_class, *arguments]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120
    )
    if done.returncode != 0:
        raise RuntimeError(done.stdout)
    return done.stdout


def _median(rounds: list[Round]) -> Round:
    return Round(
        statistics.median(r.records_per_s for r in rounds),
        statistics.median(r.p99_ms for r in rounds),
        Cpu(statistics.median(r.cpu.user_s for r in rounds), statistics.median(r.cpu.system_s for r in rounds)),
    )


def _show(found: Round) -> str:
    p99 = f", p99 {found.p99_ms:.0f} ms" if found.p99_ms else ""
    cpu = f"{found.cpu.user_s:.2f} s user + {found.cpu.system_s:.2f} s system"
    return f"{found.records_per_s:10.0f} records/s, CPU {cpu}{p99}"
