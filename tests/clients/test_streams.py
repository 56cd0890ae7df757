"""A Kafka Streams word count with exactly_once_v2, while the node is killed with -9: the counts of each word are
1, 2, 3 and so on without a gap or a repetition, and the last ones are what a Python program counts."""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.killable import killable
from tests.clients.matrix import JAVA_MARKS
from tests.clients.model import wait_for
from tools import apache

wait = partial(wait_for, patience_s=90)
pytestmark = [*JAVA_MARKS, pytest.mark.timeout(240)]

SOURCES: Final = Path(__file__).parent / "java" / "streams"
PARTITIONS: Final = 2
WORDS: Final = ("tide", "log", "sea", "wave", "shore", "moon", "ebb", "flow", "salt", "sand", "reef")


class App:
    """The word count in a JVM of its own."""

    def __init__(self, directory: Path, servers: str, **settings: str) -> None:
        values = {
            "application.id": "words",
            "bootstrap.servers": servers,
            "state.dir": str(directory / "state"),
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": "100",
            "statestore.cache.max.bytes": "0",
            "replication.factor": "1",
            "main.consumer.auto.offset.reset": "earliest",
            "main.consumer.session.timeout.ms": "3000",
            "main.consumer.heartbeat.interval.ms": "300",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        arguments = (f"{name}={value}" for name, value in values.items())
        command = apache.java("WordCount", *arguments, libs=apache.programs_libs(), sources=SOURCES)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._states: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._states.put(line.strip())

    def wait_running(self) -> None:
        while self._states.get(timeout=60) != "running":
            pass

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        try:
            self._process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def app(directory: Path, servers: str, **settings: str) -> Iterator[App]:
    made = App(directory, servers, **settings)
    try:
        made.wait_running()
        yield made
    finally:
        made.stop()


class Lines:
    """Lines that are said without a pause from a thread of their own until they are ended; what was said is kept."""

    def __init__(self, servers: str) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._say, daemon=True)
        self._thread.start()

    def _say(self) -> None:
        for number in itertools.count():
            if self._over.wait(0.005):
                break
            words = [WORDS[number * step % len(WORDS)] for step in (1, 3, 7)]
            self._producer.produce(
                "lines", " ".join(words), partition=number % PARTITIONS, on_delivery=self._on_delivery
            )
            self.counts.update(words)
            self._producer.poll(0)

    def _on_delivery(self, error: object, _: object) -> None:
        if error is not None:
            self.failures.append(str(error))

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert not self.failures


class Reader:
    """The output from its beginning, read_committed."""

    def __init__(self, servers: str) -> None:
        self.updates: dict[str, list[int]] = {}
        self._consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed", "log_level": 0}
        )
        self._consumer.assign([TopicPartition("counts", number, 0) for number in range(PARTITIONS)])

    def read(self) -> None:
        for message in self._consumer.consume(1000, timeout=0.2):
            assert message.error() is None, message.error()
            key, value = message.key(), message.value()
            assert key is not None and value is not None
            self.updates.setdefault(key.decode(), []).append(int(value))

    def count(self) -> int:
        self.read()
        return sum(map(len, self.updates.values()))

    def close(self) -> None:
        self._consumer.close()


def create_topics(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("lines", "counts")]).values():
        future.result(20)


def check(updates: dict[str, list[int]], wanted: Counter[str]) -> None:
    for word, counts in updates.items():
        assert counts == list(range(1, len(counts) + 1)), f"{word}: {counts}"
    assert {word: counts[-1] for word, counts in updates.items()} == wanted


def grow(reader: Reader) -> None:
    """Waits until some of what the application now writes is committed."""
    before = reader.count()
    wait("more counts", lambda: reader.count() > before + 50)


def test_words_are_counted_exactly_once_through_kills_of_node_and_application(tmp_path: Path) -> None:
    with killable(tmp_path / "node", group_min_session_timeout_ms="1000") as node:
        servers = node.bootstrap_servers
        create_topics(servers)
        lines, reader = Lines(servers), Reader(servers)
        with app(tmp_path, servers) as first:
            for _ in range(2):
                grow(reader)
                node.kill()
                node.start_again()
            grow(reader)
            first.kill()
        # Another one with the same transactional id: it fences what the first has left open, and builds the store
        # from its changelog.
        with app(tmp_path, servers):
            grow(reader)
            lines.end()
            wait("the last count", lambda: reader.count() >= lines.counts.total())
        reader.read()
        reader.close()
    check(reader.updates, lines.counts)
