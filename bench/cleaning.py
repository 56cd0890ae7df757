"""`./dev bench cleaning`: how fast a log is compacted, beside Apache Kafka's cleaner on the same input.

A topic is filled while it is not compacted. Then its policy is changed, and the time is taken until the broker's
`cleaner-offset-checkpoint` says that it is done: both write that file, so both are measured from outside. Each broker
is one process through all runs, and the brokers take turns. `pure` is ours where numba cannot be imported."""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from confluent_kafka import Producer

from bench import topics
from bench.cpu import cpu_of
from bench.lab import HEAP, QUICK_DELETE, page_cache
from bench.tidelog_node import TidelogNode
from tidelog.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.testing.wire import Wire
from tools import apache

SIDES = ("tidelog", "pure", "apache")
RECORD_BYTES = 1000
WARM_BYTES = 50_000_000
CLEANED_WITHIN_S = 600.0
ALIKE = {"log.cleaner.backoff.ms": "50", "log.segment.bytes": str(100 << 20), **QUICK_DELETE}
"""What both brokers are given: the cleaner looks often, so that its pause is no part of the time."""
TOPIC, CLUSTER = 2, 4
"""What a config is of."""
_SET, _DELETE, _ALTER = 0, 1, 1
_CHECKPOINT = "cleaner-offset-checkpoint"


class Cleaned(NamedTuple):
    seconds: float
    mb_per_s: float
    cpu_s: float
    left: float
    """The part of the bytes that is still there."""


class Side(NamedTuple):
    address: str
    pid: int
    data: Path


@contextmanager
def started(name: str, home: Path) -> Iterator[Side]:
    directory = home / name
    with ExitStack() as stack:
        if name == "apache":
            kafka = apache.ApacheKafka(directory, heap=HEAP, properties=ALIKE, silent=True)
            stack.callback(kafka.stop)
            kafka.start()
            assert kafka.process is not None
            yield Side(kafka.bootstrap_servers, kafka.process.pid, kafka.data[0])
            return
        env = {"PYTHONPATH": str(_without_numba(home))} if name == "pure" else {}
        properties = ALIKE | page_cache() | {"log.retention.check.interval.ms": "1000"}
        node = stack.enter_context(TidelogNode(directory, properties=properties, env=env))
        assert node.process is not None
        yield Side(node.bootstrap_servers, node.process.pid, directory)


def _without_numba(home: Path) -> Path:
    """A directory that hides numba from whoever looks here first."""
    shadow = home / "shadow"
    shadow.mkdir(exist_ok=True)
    (shadow / "numba.py").write_text('raise ImportError("hidden for a measurement")\n')
    return shadow


def run_cleaning(
    sizes: list[int], codecs: list[str], *, runs: int, live: float, sides: str | None, path: Path | None
) -> int:
    names = [name for name in SIDES if name != "apache" or apache.why_not() is None]
    names = [name for name in names if sides is None or name in sides.split(",")]
    results: dict[str, list[Cleaned]] = {}
    with TemporaryDirectory(prefix="tidelog-bench-") as home, ExitStack() as stack:
        brokers = {name: stack.enter_context(started(name, Path(home))) for name in names}
        for name, side in brokers.items():
            for number in range(2):  # warm: the JVM compiles, and so does numba
                _measure(side, f"warm-{name}-{number}", min(WARM_BYTES, *sizes), codecs[0], live)
        for size in sizes:
            for codec in codecs:
                for run in range(runs):
                    order = names if run % 2 == 0 else names[::-1]
                    for name in order:
                        found = _measure(brokers[name], f"bench-{run}-{size}-{codec}", size, codec, live)
                        key = f"{size / 1e9:g} GB, {codec}, {name}"
                        results.setdefault(key, []).append(found)
                        print(f"{time.strftime('%H:%M:%S')} {key}: {_shown(found)}", flush=True)
    print(render(results))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({key: [one._asdict() for one in found] for key, found in results.items()}, indent=1))
    return 0


def _shown(found: Cleaned) -> str:
    return f"{found.mb_per_s:,.0f} MB/s, {found.cpu_s:.2f} s CPU, {found.left:.0%} left"


def render(results: dict[str, list[Cleaned]]) -> str:
    lines = ["", f"{'':34} {'MB/s':>8} {'against Apache':>15} {'CPU s':>8} {'left':>6}"]
    for key, found in results.items():
        mb_per_s = statistics.median(one.mb_per_s for one in found)
        other = results.get(key.rpartition(", ")[0] + ", apache")
        ratio = f"{mb_per_s / statistics.median(one.mb_per_s for one in other):.2f} x" if other else ""
        cpu_s, left = (statistics.median(one[place] for one in found) for place in (2, 3))
        lines.append(f"{key:34} {mb_per_s:8,.0f} {ratio:>15} {cpu_s:8.2f} {left:6.0%}")
    return "\n".join(lines)


def _measure(side: Side, topic: str, size: int, codec: str, live: float) -> Cleaned:
    topics.create(side.address, topic)
    try:
        fill(side.address, topic, size, codec, live)
        os.sync()
        before = _log_bytes(side.data, topic)
        cpu, start = cpu_of(side.pid), time.monotonic()
        configure(side.address, topic, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
        _wait_cleaned(side.data, topic)
        took = time.monotonic() - start
        used = cpu_of(side.pid).since(cpu)
        return Cleaned(took, before / 1e6 / took, sum(used), _log_bytes(side.data, topic) / before)
    finally:
        topics.delete(side.address, topic, side.data)


def fill(address: str, topic: str, size: int, codec: str, live: float) -> None:
    """The same records on every broker; the last one alone in its segment, which is never cleaned."""
    chance = random.Random(size)
    count = size // RECORD_BYTES
    keys = max(1, int(count * live))
    # Half of a value is words that repeat, as in most logs.
    values = [chance.randbytes(RECORD_BYTES // 2) + b"tide " * (RECORD_BYTES // 10) for _ in range(256)]
    producer = Producer(
        {
            "bootstrap.servers": address,
            "compression.type": codec,
            "linger.ms": 5,
            "acks": 1,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )
    for number in range(count):
        key = f"key-{chance.randrange(keys):09}"
        while True:
            try:
                producer.produce(topic, values[number & 255], key, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0, "not all records were taken"
    configure(address, topic, {"segment.ms": "100"})
    time.sleep(0.5)
    producer.produce(topic, b"the last", b"last", partition=0)
    assert producer.flush(30) == 0, "the last record was not taken"
    configure(address, topic, {"segment.ms": str(7 * 24 * 3600 * 1000)})


def configure(address: str, name: str, values: Mapping[str, str | None], kind: int = TOPIC) -> None:
    """None: back to the default."""
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=key, config_operation=_DELETE if value is None else _SET, value=value
        )
        for key, value in values.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    with Wire(address, client_id="bench") as wire:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = wire.call(request, _ALTER, IncrementalAlterConfigsResponse).responses[0]
    assert answer.error_code == 0, answer.error_message


def _wait_cleaned(data: Path, topic: str) -> None:
    deadline = time.monotonic() + CLEANED_WITHIN_S
    while time.monotonic() < deadline:
        if is_cleaned(data, topic):
            return
        time.sleep(0.005)
    raise TimeoutError(f"{topic} was not cleaned within {CLEANED_WITHIN_S:.0f} s")


def is_cleaned(data: Path, topic: str) -> bool:
    try:
        lines = (data / _CHECKPOINT).read_text().splitlines()
    except FileNotFoundError:
        return False
    return any(line.startswith(f"{topic} 0 ") and not line.endswith(" 0") for line in lines)


def _log_bytes(data: Path, topic: str) -> int:
    total = 0
    for file in (data / f"{topic}-0").glob("*.log"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:  # renamed meanwhile
            continue
    return total
