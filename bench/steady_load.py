"""One record at a time at a steady rate, and how long each took to be acknowledged and to be consumed: a process of its
own, so that whoever measures does not share its interpreter.

    python -m bench.steady_load ADDRESS TOPIC RATE FILE

It says "ready" when records go round, goes on until its standard input ends, and then writes what it found. A record
counts from the moment when it was due, so a broker that stops is seen by all that had to wait, not by one.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

_DUE = struct.Struct("<d")
_RECORD_BYTES = 100
_SETTLES_S = 10.0
CLIENT = {"log_level": 0, "socket.nagle.disable": True}
PRODUCER = {"acks": 1, "linger.ms": 0, "batch.num.messages": 1, **CLIENT}
CONSUMER = {"group.id": "bench", "enable.auto.commit": False, "fetch.wait.max.ms": 100, **CLIENT}


class SteadyLoad:
    def __init__(self, address: str, topic: str, rate: float) -> None:
        self._topic = topic
        self._pause_s = 1 / rate
        self._producer = Producer({"bootstrap.servers": address, **PRODUCER})
        self._consumer = Consumer({"bootstrap.servers": address, **CONSUMER})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._over = threading.Event()
        self.acknowledged: list[tuple[float, float]] = []
        self.consumed: list[tuple[float, float]] = []
        """(when it was due on the monotonic clock, seconds)"""

    def run(self, is_over: threading.Event) -> None:
        waiters = [threading.Thread(target=target) for target in (self._consume, self._take_answers)]
        for waiter in waiters:
            waiter.start()
        try:
            self._produce(is_over)
            deadline = time.monotonic() + _SETTLES_S
            while len(self.consumed) < len(self.acknowledged) and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            self._over.set()
            for waiter in waiters:
                waiter.join()
            self._consumer.close()

    def _produce(self, is_over: threading.Event) -> None:
        producer, due_s = self._producer, time.monotonic()
        is_ready = False
        while not is_over.is_set():
            now_s = time.monotonic()
            while due_s <= now_s:
                value = _DUE.pack(due_s).ljust(_RECORD_BYTES, b".")
                producer.produce(self._topic, value, partition=0, on_delivery=partial(self._delivered, due_s))
                due_s += self._pause_s
            # Not poll(): it waits whole milliseconds, and turned round without a pause took one of two cores.
            time.sleep(max(due_s - time.monotonic(), 0))
            if not is_ready and self.consumed:
                print("ready", flush=True)
                is_ready = True
        if producer.flush(_SETTLES_S):
            raise TimeoutError("not all records were taken")

    def _take_answers(self) -> None:
        while not self._over.is_set():
            self._producer.poll(0.1)

    def _delivered(self, due_s: float, error: Any, _: Any) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        self.acknowledged.append((due_s, time.monotonic() - due_s))

    def _consume(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                now_s = time.monotonic()
                (due_s,) = _DUE.unpack_from(message.value() or b"")
                self.consumed.append((due_s, now_s - due_s))


def main(address: str, topic: str, rate: str, path: str) -> None:
    sys.setswitchinterval(0.0005)  # the two threads wait for each other's turn no longer than that
    load, is_over = SteadyLoad(address, topic, float(rate)), threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    load.run(is_over)
    Path(path).write_text(json.dumps({"acknowledged": load.acknowledged, "consumed": load.consumed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
