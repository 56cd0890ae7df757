"""A steady producer that knows what was acknowledged: confluent-kafka, idempotent, acks=all, patient with its node."""

from __future__ import annotations

import json
import threading
from functools import partial
from typing import Final, Self

from confluent_kafka import Message, Producer

At = tuple[int, int]
"""(partition, offset)"""
_STEP_S: Final = 0.02
_PATIENCE_MS: Final = 900_000


class Generator:
    """A context manager that sends until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        self.topic = topic
        self.acknowledged: dict[At, bytes] = {}
        self.troubles: list[str] = []
        self.version = 1
        """Of the payload: each has a field more than the one before."""
        self._rate = rate
        self._sent = 0
        self._ends: dict[int, int] = {}
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": _PATIENCE_MS,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,  # partitions that are added are used soon
                "error_cb": self._failed,
                "log_level": 0,  # a node that is away would fill the screen
            }
        )
        self._thread = threading.Thread(target=self._run, name="generator", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.purge()

    def finish(self) -> None:
        """Sends no more, and waits until all that was sent is acknowledged."""
        self._stop.set()
        self._thread.join()
        if left := self._producer.flush(_PATIENCE_MS / 1000):
            self.troubles.append(f"{left} records were not acknowledged within {_PATIENCE_MS // 1000} s")

    def ends(self) -> dict[int, int]:
        """Behind the last acknowledged record of each partition."""
        return dict(self._ends)

    def _run(self) -> None:
        owed = 0.0
        while not self._stop.wait(_STEP_S):
            owed += self._rate * _STEP_S
            while owed >= 1:
                owed -= 1
                self._send()
            self._producer.poll(0)

    def _send(self) -> None:
        number = self._sent
        payload = {
            "id": number,
            "at": f"2026-11-16T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z",
        }
        payload |= {f"more_{version}": "x" for version in range(2, self.version + 1)}
        value = json.dumps(payload).encode()
        try:
            self._producer.produce(self.topic, value, b"%d" % number, on_delivery=partial(self._delivered, value))
        except BufferError:
            return  # the node is away for long; this one comes later
        self._sent += 1

    def _delivered(self, value: bytes, error: object, message: Message) -> None:
        if error is not None:
            self.troubles.append(f"not delivered: {error}")
            return
        partition, offset = message.partition(), message.offset()
        if (partition, offset) in self.acknowledged:
            self.troubles.append(f"{self.topic}-{partition}: offset {offset} was given out twice")
        self.acknowledged[partition, offset] = value
        self._ends[partition] = max(self._ends.get(partition, 0), offset + 1)

    def _failed(self, error: object) -> None:
        """A node that is away is no trouble; a producer that can go on no more is."""
        if error.fatal():  # type: ignore[attr-defined]
            self.troubles.append(f"the producer is done for: {error}")
