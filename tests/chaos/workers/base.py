"""What every worker is told and how it ends. A worker is a process of its own: it can be killed and stopped."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from msgspec import Struct

from tests.chaos.history import Recorder

MEMBER_SESSION_MS = 5000
TRANSACTION_MS = 5000


class Task(Struct, kw_only=True):
    role: str
    client: str
    """confluent, aiokafka, kafka-python or java."""
    process: str
    servers: str
    history: str
    """The file to write to."""
    seed: int
    topic: str = "t"
    partitions: int = 3
    target: str = ""
    """Of a copier: where it copies to."""
    transactional_id: str = ""
    group: str = ""
    assignor: str = "range"
    """range, cooperative-sticky, or consumer for the new protocol."""
    instance: str = ""
    pause_s: float = 0.01
    """Between two rounds."""


class Worker:
    def __init__(self, task: Task) -> None:
        self.task = task
        self.chance = random.Random(task.seed)
        self.recorder = Recorder(Path(task.history), task.process)
        self.stopping = threading.Event()
        threading.Thread(target=self._await_end, daemon=True).start()

    def _await_end(self) -> None:
        """The one who started us closes our standard input, on purpose or because he is gone."""
        while os.read(0, 1000):
            pass
        self.stopping.set()

    def rest(self) -> None:
        self.stopping.wait(self.task.pause_s)

    def key(self, number: int, topic: str = "") -> str:
        return f"{topic or self.task.topic}/{number}"

    @property
    def base(self) -> dict[str, Any]:
        """What every client of librdkafka is given."""
        return {
            "bootstrap.servers": self.task.servers,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
            "socket.timeout.ms": 4000,
            "log_level": 0,
        }

    def run(self) -> None:
        raise NotImplementedError


def error_of(raised: KafkaException) -> KafkaError:
    error: KafkaError = raised.args[0]
    return error


def known_offset(message: Message) -> int | None:
    """None where the broker knew the record already and did not say where it is."""
    offset = message.offset()
    return offset if offset is not None and offset >= 0 else None
