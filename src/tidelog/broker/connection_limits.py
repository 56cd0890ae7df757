"""Who may connect: max.connections (all listeners, or one), max.connections.per.ip and its overrides, and
max.connection.creation.rate. Decides and counts; holding back or closing is the listener's business.

As in Kafka, an address with too many connections is turned away, while one connection too many for the broker or its
listener waits until another one ends. The broker's own listener (inter.broker.listener.name) is not held back by
max.connections when there are others: their longest idle connections make room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from tidelog.broker.ledger import Resource
from tidelog.metadata.live_config import LiveConfig

WITHOUT_LIMIT: Final = 2**31 - 1


class Rate:
    """So many a second, a second's worth at once."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._spent = 0.0
        self._at_s = monotonic_s()

    def wait_s(self, per_second: int) -> float:
        """0 when one more may come now; it is for the caller to count it with spend()."""
        now_s = self._monotonic_s()
        self._spent = max(self._spent - (now_s - self._at_s) * per_second, 0.0)
        self._at_s = now_s
        if per_second <= 0:
            return 1.0
        return max((self._spent + 1 - per_second) / per_second, 0.0)

    def spend(self) -> None:
        self._spent += 1


class ConnectionLimits:
    def __init__(
        self, config: LiveConfig, monotonic_s: Callable[[], float], descriptors: Resource, own_listener: str
    ) -> None:
        self._config = config
        self._monotonic_s = monotonic_s
        self.descriptors = descriptors
        self._own_listener = own_listener
        self._by_listener: Counter[str] = Counter()
        self._by_host: Counter[str] = Counter()
        self._admitted = 0
        self._rates: dict[str, Rate] = {}
        self._admit: list[Callable[[], None]] = []
        self._numbers = 0
        self._overrides: tuple[str, dict[str, int]] = ("", {})

    def register(self, listener: str, admit: Callable[[], None]) -> None:
        """Admit is called when a connection has ended, of whichever listener."""
        self._by_listener[listener] += 0
        self._admit.append(admit)

    def next_number(self) -> int:
        """Of a connection: over all listeners, in the order in which they were accepted."""
        self._numbers += 1
        return self._numbers

    # counting: opened and closed for each that came in, admitted and left for those that are served

    def opened(self, host: str) -> str | None:
        """Why it must be closed at once, if it must. It counts until closed() in any case."""
        self.descriptors.used += 1
        self._by_host[host] += 1
        if self.descriptors.used > self.descriptors.limit:
            self.descriptors.refused += 1
            return f"there are descriptors for {self.descriptors.limit} connections only"
        most = self._per_host(host)
        if self._by_host[host] > most:
            self.descriptors.refused += 1
            return f"{most} connections from one address is the limit (max.connections.per.ip)"
        return None

    def closed(self, host: str) -> None:
        self.descriptors.used -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def admitted(self, listener: str) -> None:
        self._admitted += 1
        self._by_listener[listener] += 1
        for scope in ("", listener):
            self._rate(scope).spend()

    def left(self, listener: str) -> None:
        self._admitted -= 1
        self._by_listener[listener] -= 1
        for admit in self._admit:
            admit()

    # deciding

    def has_slot(self, listener: str) -> bool:
        if self._by_listener[listener] >= self._limit("max.connections", listener):
            return False
        return self._is_protected(listener) or self._admitted < self._config.integer("max.connections")

    def wait_s(self, listener: str) -> float:
        """How long the next one must wait for max.connection.creation.rate."""
        name = "max.connection.creation.rate"
        limits = (("", self._config.integer(name)), (listener, self._limit(name, listener)))
        return max((self._rate(s).wait_s(most) for s, most in limits if most != WITHOUT_LIMIT), default=0.0)

    def must_shrink(self, listener: str) -> bool:
        """The broker's own listener took one more than max.connections: another one gives one up."""
        return self._admitted > self._config.integer("max.connections") and not self._is_protected(listener)

    def _is_protected(self, listener: str) -> bool:
        return listener == self._own_listener and len(self._by_listener) > 1

    def _rate(self, scope: str) -> Rate:
        if scope not in self._rates:
            self._rates[scope] = Rate(self._monotonic_s)
        return self._rates[scope]

    def _limit(self, name: str, listener: str) -> int:
        value = self._config.for_listener(listener, name)
        return WITHOUT_LIMIT if value is None else value

    def _per_host(self, host: str) -> int:
        text = str(self._config.values["max.connections.per.ip.overrides"] or "")
        if text != self._overrides[0]:
            self._overrides = text, parse_overrides(text)
        found = self._overrides[1].get(host)
        return self._config.integer("max.connections.per.ip") if found is None else found


def parse_overrides(text: str) -> dict[str, int]:
    """max.connections.per.ip.overrides: address:number, with commas between. An IPv6 address may stand in brackets.
    What is none of this is passed over: it was set while the node ran, and the node must go on."""
    result = {}
    for entry in text.split(","):
        host, _, number = entry.strip().rpartition(":")
        if host and number.isdecimal():
            result[host.strip("[]")] = int(number)
    return result
