"""What happens in the shop: activity, orders, payments and service metrics, made up from a seed. Pure.

The same seed gives the same events in the same order; their times hang on the clock that is handed in. Some are as the
world sends them: late (a phone that was offline), twice (a payment provider that calls again), or broken.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, Final, Literal

TOPICS: Final = ("activity", "orders", "payments", "metrics")
Kind = Literal["plain", "late", "twice", "broken", "closing"]

LATE_MS: Final = (60_000, 300_000)
"""How late: long after the windows of shop.yaml have been closed."""
CLOSING_MS: Final = 600_000
_LATE: Final = 0.03
_TWICE: Final = 0.05
_BROKEN: Final = 0.01
_USERS: Final = 400
_COUNTRIES: Final = ("DE", "FR", "NL", "PL", "ES")
_PAGES: Final = ("/", "/search", "/shoes", "/coats", "/hats", "/cart", "/help")
_METHODS: Final = ("card", "transfer", "invoice")
_SERVICES: Final = ("web", "checkout", "search", "billing")


@dataclass(frozen=True, slots=True)
class Event:
    topic: str
    kind: Kind
    key: bytes
    value: bytes


class Shop:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._orders = 0
        self._payments = 0
        self._unpaid: deque[tuple[str, str, float]] = deque(maxlen=1000)
        self._last_payment: Event | None = None

    def next(self, now_ms: int) -> Event:
        topic = self._random.choices(TOPICS, weights=(55, 15, 15, 15))[0]
        if topic == "payments":
            return self._payment(now_ms)
        if topic == "orders":
            return self._order(now_ms)
        if topic == "metrics":
            return self._metrics(now_ms)
        return self._activity(now_ms)

    def closing(self, now_ms: int) -> list[Event]:
        """The last order of the day, whose time closes all windows that are open but its own."""
        at = _text(now_ms + CLOSING_MS)
        order = {"order_id": "closing", "user": "shop", "country": "DE", "items": 0, "amount": 0.0, "ordered_at": at}
        return [_event("orders", "closing", "shop", order)]

    def _activity(self, now_ms: int) -> Event:
        user = self._user()
        action = self._random.choices(("view", "search", "cart"), weights=(7, 2, 1))[0]
        kind, at = self._when(now_ms)
        value = {"user": user, "page": self._random.choice(_PAGES), "action": action, "at": _text(at)}
        return self._maybe_broken(_event("activity", kind, user, value))

    def _order(self, now_ms: int) -> Event:
        self._orders += 1
        order, user, items = f"o{self._orders:06d}", self._user(), self._random.randint(1, 5)
        amount = round(sum(self._random.lognormvariate(3.4, 0.6) for _ in range(items)), 2)
        kind, at = self._when(now_ms)
        value = {
            "order_id": order,
            "user": user,
            "country": self._random.choice(_COUNTRIES),
            "items": items,
            "amount": amount,
            "ordered_at": _text(at),
        }
        event = self._maybe_broken(_event("orders", kind, user, value))
        if event.kind != "broken":
            self._unpaid.append((order, user, amount))
        return event

    def _payment(self, now_ms: int) -> Event:
        if self._last_payment is not None and self._random.random() < _TWICE:
            again, self._last_payment = self._last_payment, None
            return Event(again.topic, "twice", again.key, again.value)
        if not self._unpaid:
            return self._activity(now_ms)
        order, user, amount = self._unpaid.popleft()
        self._payments += 1
        value = {
            "payment_id": f"p{self._payments:06d}",
            "order_id": order,
            "method": self._random.choice(_METHODS),
            "amount": amount,
            "status": self._random.choices(("paid", "declined"), weights=(93, 7))[0],
            "paid_at": _text(now_ms),
        }
        event = self._maybe_broken(_event("payments", "plain", user, value))
        self._last_payment = event if event.kind == "plain" else None
        return event

    def _metrics(self, now_ms: int) -> Event:
        service, host = self._random.choice(_SERVICES), f"host-{self._random.randint(1, 3)}"
        requests = self._random.randint(50, 500)
        value = {
            "service": service,
            "host": host,
            "requests": requests,
            "errors": sum(self._random.random() < 0.002 for _ in range(requests)),
            "p99_ms": round(self._random.lognormvariate(3.5, 0.5), 1),
            "at": _text(now_ms),
        }
        return self._maybe_broken(_event("metrics", "plain", f"{service}/{host}", value))

    def _when(self, now_ms: int) -> tuple[Kind, int]:
        if self._random.random() < _LATE:
            return "late", now_ms - self._random.randint(*LATE_MS)
        return "plain", now_ms

    def _user(self) -> str:
        return f"u{self._random.randint(1, _USERS):04d}"

    def _maybe_broken(self, event: Event) -> Event:
        if self._random.random() >= _BROKEN:
            return event
        cut = event.value[: self._random.randint(1, len(event.value) - 2)]
        wrong_type = json.dumps({key: {"is": "not", "of": "the schema"} for key in json.loads(event.value)}).encode()
        value = self._random.choice((cut, wrong_type, b"<html><body>502 Bad Gateway</body></html>"))
        return Event(event.topic, "broken", event.key, value)


def _event(topic: str, kind: Kind, key: str, value: dict[str, Any]) -> Event:
    return Event(topic, kind, key.encode(), json.dumps(value).encode())


def _text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
