"""Partitions as people write them on a command line: `topic`, `topic:0,2`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.cli.common import UsageError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.metadata import TopicPartition


def parse_spec(text: str) -> tuple[str, list[int] | None]:
    """A topic and its named partitions; None for all of them."""
    topic, colon, rest = text.partition(":")
    if not colon:
        return topic, None
    return topic, parse_numbers(rest, f"{text!r}: partitions are numbers with commas, such as {topic}:0,2")


def parse_numbers(text: str, complaint: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise UsageError(complaint)
    return [int(part) for part in parts]


async def resolve(cluster: Cluster, specs: Iterable[str]) -> list[TopicPartition]:
    """The partitions that `topic` or `topic:0,2` mean; an error names one that does not exist."""
    from tidelog.client.metadata import TopicPartition

    found: dict[TopicPartition, None] = {}
    for spec in specs:
        name, numbers = parse_spec(spec)
        topic = await cluster.topic(name)
        for number in topic.partitions if numbers is None else numbers:
            at = TopicPartition(name, number)
            cluster.metadata.partition(at)
            found[at] = None
    return list(found)
