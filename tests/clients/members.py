"""Java consumers of one group, polled in turn."""

from __future__ import annotations

from typing import Any, Final

from tests.clients.adapters.java import Java, JavaConsumer
from tests.clients.model import ConsumerOptions, ProducerOptions, Record, wait_for

PARTITIONS: Final = 4


class Members:
    """Consumers of one group that are polled in turn; what they read is kept."""

    def __init__(self, java: Java, group: str) -> None:
        self._java = java
        self.group = group
        self.all: list[JavaConsumer] = []
        self.records: list[Record] = []

    def add(
        self, topic: str | None, protocol: str = "consumer", *, instance: str | None = None, **settings: str
    ) -> JavaConsumer:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        options = ConsumerOptions(group=self.group, instance=instance)
        member = JavaConsumer(self._java.jvm, options, {"group.protocol": protocol, **named})
        if topic is not None:
            member.subscribe(topic)
        self.all.append(member)
        return member

    def poll(self) -> None:
        for member in self.all:
            self.records += member.poll()

    def owned(self) -> list[set[int]]:
        return [{number for _, number in member.assignment()} for member in self.all]

    def settled(self) -> bool:
        """Each has its equal part."""
        self.poll()
        owned = self.owned()
        sizes = [len(one) for one in owned]
        return sum(sizes) == len(set().union(*owned)) == PARTITIONS and max(sizes) - min(sizes) <= 1

    def settle(self) -> list[set[int]]:
        wait_for(f"{len(self.all)} members with an equal part each", self.settled)
        return self.owned()

    def remove(self, member: JavaConsumer) -> None:
        self.all.remove(member)
        member.close()


def details(java: Java, group: str) -> dict[str, Any]:
    return dict(java.jvm.call("group_details", group=group))


def produce(java: Java, topic: str, first: int, count: int) -> None:
    records = [Record(value=b"%d" % number, partition=number % PARTITIONS) for number in range(first, first + count)]
    java.produce(topic, records, ProducerOptions())
