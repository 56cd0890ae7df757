"""The brokers and clients of one bench: started when a row first asks for them, all ended with it."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import frames, java_load, topics
from bench.cpu import Cpu, cpu_of
from bench.generator import replay
from bench.java_load import JavaLoad
from bench.row import Figures
from bench.tidelog_node import TidelogNode
from tools import apache

HEAP = "1g"
QUICK_DELETE = {"log.segment.delete.delay.ms": "200"}
"""Both brokers: the files of a deleted topic are gone before the next run begins."""
LOOK_OFTEN = {"log.retention.check.interval.ms": "1000"}
"""Tidelog removes them when it looks at retention. Not for the node called `many`: a look at ten thousand partitions
each second would be measured too."""
SYNC_MODE = "tidelog.sync.mode"


@dataclass
class Broker:
    """What a row needs to know of a running broker."""

    address: str
    pid: int
    data: Path
    handle: Any


def sync_mode_is_known() -> bool:
    from tidelog.metadata.config import BROKER_CONFIGS

    return SYNC_MODE in BROKER_CONFIGS


def page_cache() -> dict[str, str]:
    return {SYNC_MODE: "page-cache"} if sync_mode_is_known() else {}


class Lab:
    def __init__(self, *, with_apache: bool | None = None, warm_s: float = 0.0) -> None:
        self.warm_s = warm_s
        self.no_java = java_load.why_not()
        self.has_apache = apache.why_not() is None if with_apache is None else with_apache
        self.java = JavaLoad()
        self._stack = ExitStack()
        self._brokers: dict[str, Broker] = {}
        self._numbers = itertools.count(1)

    def __enter__(self) -> Lab:
        self.home = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-bench-")))
        self._stack.enter_context(self.java)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def broker(self, name: str) -> Broker:
        found = self._brokers.get(name)
        if found is None or found.handle.process.poll() is not None:
            found = self._brokers[name] = self._start(name)
            self._warm(found)
        return found

    def _warm(self, broker: Broker) -> None:
        """A new JVM is many times slower than the same one a minute later, whichever row happens to be the first."""
        if not self.warm_s:
            return
        with Topic(self, broker) as topic:
            for made in (frames.produce(topic.id, (0,), 100, count=1), frames.fetch(topic.id, 100, 1, 1)):
                replay(broker.address, made, connections=50, seconds=self.warm_s / 2)

    def _start(self, name: str) -> Broker:
        directory = self.home / f"{name}-{next(self._numbers)}"
        if name == "apache":
            # Its backlog of 50 makes a thousand connections wait for the kernel's second try; that is not measured.
            properties = QUICK_DELETE | {"socket.listen.backlog.size": "1024"}
            kafka = apache.ApacheKafka(directory, heap=HEAP, properties=properties, silent=True)
            self._stack.callback(kafka.stop)  # also when it does not come up
            kafka.start()
            assert kafka.process is not None
            return Broker(kafka.bootstrap_servers, kafka.process.pid, directory / "logs", kafka)
        properties = {} if name == "many" else QUICK_DELETE | LOOK_OFTEN
        properties = properties | ({} if name == "synced" else page_cache())
        node = self._stack.enter_context(TidelogNode(directory, properties=properties))
        assert node.process is not None
        return Broker(node.bootstrap_servers, node.process.pid, directory, node)

    def end(self, name: str) -> None:
        """Kills a broker and removes what it wrote."""
        if broker := self._brokers.pop(name, None):
            broker.handle.process.kill()
            broker.handle.stop()
            shutil.rmtree(broker.data, ignore_errors=True)
            os.sync()

    def fresh_name(self) -> str:
        return f"bench{next(self._numbers)}"


class Meter:
    """The CPU that a broker uses from here on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = cpu_of(pid)

    def figures(self, *, seconds: float, records: int, data_bytes: int) -> Figures:
        """Rates and the broker's CPU, per GB and per record."""
        cpu: Cpu = cpu_of(self._pid).since(self._before)
        total_s = cpu.user_s + cpu.system_s
        gb = data_bytes / 1e9
        return {
            "records_per_s": records / seconds,
            "mb_per_s": data_bytes / 1e6 / seconds,
            "user_s_per_gb": cpu.user_s / gb,
            "system_s_per_gb": cpu.system_s / gb,
            "total_s_per_gb": total_s / gb,
            "user_us_per_record": cpu.user_s / records * 1e6,
            "system_us_per_record": cpu.system_s / records * 1e6,
            "total_us_per_record": total_s / records * 1e6,
            "broker_cores": total_s / seconds,
            "seconds": seconds,
        }


LATENCIES = ("p50_ms", "p99_ms", "p999_ms", "max_ms")


def client_figures(found: dict[str, Any]) -> Figures:
    """What a client reports of itself: latencies, and how much CPU it took."""
    figures = {name: float(found[name]) for name in LATENCIES if name in found}
    figures["client_cores"] = found["client_s"] / found["seconds"]
    return figures


class Topic:
    """A topic that is gone from the disk, and the disk in sync, when the block ends."""

    def __init__(self, lab: Lab, broker: Broker, partitions: int = 1) -> None:
        self.broker = broker
        self.name = lab.fresh_name()
        self.partitions = partitions

    def __enter__(self) -> Topic:
        self.id = topics.create(self.broker.address, self.name, self.partitions)
        return self

    def __exit__(self, *_: object) -> None:
        topics.delete(self.broker.address, self.name, self.broker.data)
