"""The shop's services as producers: a thread that sends what happens at a rate, and counts what is acknowledged.

What was acknowledged is the one truth that neither the node nor the pipeline has a hand in.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any, Final

from confluent_kafka import Producer

from tidelog.audit.confluent import AuditedProducer
from tools.demo.events import TOPICS, Event, Kind, Shop

SERVICES: Final = {"activity": "web", "orders": "checkout", "payments": "billing", "metrics": "monitor"}
"""Which service writes which topic: the producers' names in the audit."""
AUDIT_WINDOW_MS: Final = 10_000
_TURN_S: Final = 0.05
_CATCH_UP_S: Final = 1.0


class Generator:
    def __init__(self, bootstrap_servers: str, *, seed: int, rate: float) -> None:
        self._shop = Shop(seed)
        self._rate = rate
        self._lock = threading.Lock()
        self._acked: Counter[tuple[str, Kind]] = Counter()
        self._sent = 0
        self._refused = 0
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._producers = {
            topic: AuditedProducer(
                Producer(_config(bootstrap_servers)), name=SERVICES[topic], topics=[topic], window_ms=AUDIT_WINDOW_MS
            )
            for topic in TOPICS
        }
        self._thread = threading.Thread(target=self._run, name="generator", daemon=True)
        self._thread.start()

    # What is known, from any thread

    def acked(self) -> dict[str, dict[str, int]]:
        """Acknowledged records by topic and kind."""
        with self._lock:
            found: dict[str, dict[str, int]] = {topic: {} for topic in TOPICS}
            for (topic, kind), count in sorted(self._acked.items()):
                found[topic][kind] = count
            return found

    def acked_in_all(self) -> int:
        with self._lock:
            return self._acked.total()

    @property
    def under_way(self) -> int:
        """Sent and not yet acknowledged."""
        with self._lock:
            return self._sent - self._refused - self._acked.total()

    @property
    def refused(self) -> int:
        """Given up by the client: it may be in the log or not."""
        return self._refused

    def close(self, within_s: float) -> int:
        """The shop closes: its last events, and all that is under way; how many are left that nobody acknowledged."""
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        for event in self._shop.closing(_now_ms()):
            self._send(event)
        return sum(producer.close(within_s) for producer in self._producers.values())

    def abandon(self) -> None:
        """Without a word to the audit: the demo is over."""
        self._stop.set()
        self._thread.join()
        for producer in self._producers.values():
            producer.client.purge()

    # The thread

    def _run(self) -> None:
        try:
            due_s = time.monotonic()
            while not self._stop.wait(_TURN_S):
                now_s = time.monotonic()
                # A machine that stood still for long is not made to catch up with all of it.
                due_s = max(due_s, now_s - _CATCH_UP_S)
                while due_s < now_s:
                    self._send(self._shop.next(_now_ms()))
                    due_s += 1 / self._rate
                for producer in self._producers.values():
                    producer.poll(0)
        except BaseException as error:
            self._error = error

    def _send(self, event: Event) -> None:
        place = (event.topic, event.kind)

        def delivered(error: Any, _message: Any) -> None:
            with self._lock:
                if error is None:
                    self._acked[place] += 1
                else:
                    self._refused += 1

        self._producers[event.topic].produce(event.topic, event.value, event.key, on_delivery=delivered)
        with self._lock:
            self._sent += 1


def _config(bootstrap_servers: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap_servers,
        # A record that is sent again after a crash is in the log once.
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": 50,
        "reconnect.backoff.max.ms": 500,
        # The node is away for a while in this story: that is no error, and no news either.
        "log_level": 0,
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
