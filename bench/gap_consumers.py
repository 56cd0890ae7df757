"""The consumers of one group whose silence is measured: librdkafka's in threads, or Java's in a process of their
own."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tools import apache

SOURCE = Path(__file__).with_name("GapConsumers.java")
STOPS_S = 30.0
Arrived = Callable[[int, int, float], None]
"""A record of this partition came to this consumer, at a time in seconds."""


class Consumers(Protocol):
    def start(self, number: int) -> None: ...

    def stop(self) -> None: ...


class Librdkafka:
    def __init__(self, address: str, topic: str, group: str, config: Mapping[str, str], arrived: Arrived) -> None:
        base: dict[str, Any] = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "latest"}
        self._config = base | {"enable.auto.commit": False} | dict(config)
        self._topic = topic
        self._arrived = arrived
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, number: int) -> None:
        thread = threading.Thread(target=self._consume, args=(number,))
        self._threads.append(thread)
        thread.start()

    def _consume(self, number: int) -> None:
        import confluent_kafka as ck

        consumer = ck.Consumer(self._config)
        consumer.subscribe([self._topic])
        while not self._stop.is_set():
            for message in consumer.consume(100, timeout=0.02):
                if message.error() is None:
                    self._arrived(message.partition(), number, time.perf_counter())
        consumer.close()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(STOPS_S)


class Java:
    def __init__(self, address: str, topic: str, group: str, config: Mapping[str, str], arrived: Arrived) -> None:
        self._arrived = arrived
        flags = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        settings = [f"{name}={value}" for name, value in config.items()]
        self._process = subprocess.Popen(
            ["java", *flags, "-cp", f"{apache.apache_libs()}/*", str(SOURCE), address, topic, group, *settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def start(self, number: int) -> None:
        self._tell(f"start {number}")

    def stop(self) -> None:
        self._tell("stop")
        try:
            self._process.wait(STOPS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            partition, number, nanos = line.split()
            self._arrived(int(partition), int(number), int(nanos) / 1e9)
