"""A food-delivery shop: one event for an order, and as many independent services as there are.

Kitchen, courier, billing, notifications and analytics are five consumer groups on one topic. None knows of the others,
and whoever places an order knows of none of them. One is down for a while and catches up. A sixth is added later and
reads all that happened before it was thought of.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter, defaultdict
from typing import Any

from confluent_kafka import Consumer, Producer
from story import Story, tell

TOPIC = "orders"
PARTITIONS = 3
MENU = {"ramen": 12, "pizza": 10, "curry": 11, "salad": 8}
CUSTOMERS = ("ann", "ben", "cleo", "dan", "eve", "finn", "gus", "hana")


class Service:
    """A consumer group: each member is a thread with a consumer of its own, and they share the partitions."""

    def __init__(self, bootstrap: str, name: str, members: int = 1) -> None:
        self.bootstrap, self.name, self.members = bootstrap, name, members
        self.handled: list[dict[str, Any]] = []
        self.by_member: Counter[int] = Counter()
        self._assigned: dict[int, int] = {}
        self._changed = threading.Condition()

    def start(self) -> Service:
        self._stopping = threading.Event()
        self._assigned = {}
        self._threads = [
            threading.Thread(target=self._work, args=[number], daemon=True) for number in range(self.members)
        ]
        for thread in self._threads:
            thread.start()
        self._wait(self._is_shared)
        return self

    def _is_shared(self) -> bool:
        """Every member has partitions, and together they have all."""
        counts = [self._assigned.get(member, 0) for member in range(self.members)]
        return sum(counts) == PARTITIONS and all(counts)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, orders: int) -> None:
        self._wait(lambda: len(self.handled) >= orders)

    def _wait(self, condition) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, timeout=60):
                raise TimeoutError(f"{self.name} does not get on: {len(self.handled)} orders are handled")

    def _work(self, member: int) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.name,
                "auto.offset.reset": "earliest",  # a group without offsets begins with the first order there is
                "enable.auto.commit": False,
            }
        )

        def assigned(_consumer: Consumer, partitions: list[Any]) -> None:
            with self._changed:
                self._assigned[member] = len(partitions)
                self._changed.notify_all()

        consumer.subscribe([TOPIC], on_assign=assigned)
        while not self._stopping.is_set():
            message = consumer.poll(0.1)
            if message is None:
                continue
            assert not message.error(), message.error()
            with self._changed:
                self.handled.append(json.loads(message.value()))
                self.by_member[member] += 1
                self._changed.notify_all()
            consumer.commit(message, asynchronous=False)  # done: after a restart it begins behind this order
        consumer.close()


class Till:
    """Where orders are placed. The customer is the key, so the orders of one customer stay in their order."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
        self._chance = random.Random(7)
        self.placed: list[dict[str, Any]] = []

    def place(self, count: int) -> int:
        for _ in range(count):
            dish = self._chance.choice(list(MENU))
            customer = self._chance.choice(CUSTOMERS)
            order = {"id": len(self.placed) + 1, "customer": customer, "dish": dish, "price": MENU[dish]}
            self.placed.append(order)
            self._producer.produce(TOPIC, key=customer, value=json.dumps(order))
        assert self._producer.flush(60) == 0
        return len(self.placed)


def play(story: Story) -> None:
    story.topic(TOPIC, PARTITIONS)
    till = Till(story.bootstrap)
    names = ("courier", "billing", "notifications", "analytics")
    services = {"kitchen": Service(story.bootstrap, "kitchen", members=2)}
    services |= {name: Service(story.bootstrap, name) for name in names}
    for service in services.values():
        service.start()
    kitchen, billing = services["kitchen"], services["billing"]

    story.act("Five services and 30 orders: each event is written once, and every service reads it for itself")
    total = till.place(30)
    wait_for(services, total)
    story.table(["SERVICE", "ORDERS"], [(name, len(service.handled)) for name, service in services.items()])
    story.say(f"the kitchen has two cooks: one has cooked {kitchen.by_member[0]}, the other {kitchen.by_member[1]}")
    story.expect(min(kitchen.by_member[0], kitchen.by_member[1]) > 0, "members of one group share its orders")

    story.act("Billing is down, and 40 more orders are placed: nobody else notices")
    billing.stop()
    total = till.place(40)
    wait_for({name: service for name, service in services.items() if service is not billing}, total)
    story.table(["SERVICE", "ORDERS"], [(name, len(service.handled)) for name, service in services.items()])
    story.tidelog("group", "describe", "billing")
    story.expect(len(billing.handled) == 30, "billing has 40 orders to go")

    story.act("Billing is back: it goes on behind the last order that it had committed")
    billing.start()
    wait_for(services, total)
    billed = sum(order["price"] for order in billing.handled)
    owed = sum(order["price"] for order in till.placed)
    story.expect(billed == owed, f"{billed} is billed for {len(billing.handled)} orders: no order twice, none left out")

    story.act("A sixth service, loyalty, is added: it reads from the beginning, and nobody had to keep orders for it")
    services["loyalty"] = Service(story.bootstrap, "loyalty").start()
    wait_for(services, total)
    points = Counter()
    for order in services["loyalty"].handled:
        points[order["customer"]] += order["price"]
    story.say(f"{sum(points.values())} points for {len(points)} customers")
    for service in services.values():
        service.stop()
    story.tidelog("group", "describe", "loyalty")

    story.act("What every service has seen in the end")
    for name, service in services.items():
        ids = sorted(order["id"] for order in service.handled)
        by_customer = defaultdict(list)
        for order in service.handled:
            by_customer[order["customer"]].append(order["id"])
        ordered = all(seen == sorted(seen) for seen in by_customer.values())
        exact = ids == list(range(1, total + 1))
        story.expect(exact and ordered, f"{name}: each of {total} orders once, those of a customer in their order")


def wait_for(services: dict[str, Service], orders: int) -> None:
    for service in services.values():
        service.wait_for(orders)


if __name__ == "__main__":
    tell(play, __doc__)
