"""The trail of redriven letters: a compacted topic with a record for each letter that was sent back.

Its key is the letter's place (the id of the dead-letter topic, partition, offset), its value says who sent it, when and
by which filter. It is written in the transaction that sends the letter: both are there, or neither.
"""

from __future__ import annotations

import msgspec

from tidelog.client.topics import NewTopic
from tidelog.spark.link import Link
from tidelog.spark.pipeline.letters.reading import Place, records
from tidelog.spark.pipeline.letters.topics import create

_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One letter's way back."""

    topic: str
    partition: int
    offset: int
    who: str
    at_ms: int
    run: str
    filter: dict[str, str | int] = {}
    query: str = ""


def trail_topic(dead: str) -> str:
    return f"{dead}.redriven"


def ensure(link: Link, dead: str) -> None:
    topic = trail_topic(dead)
    if topic not in link.existing([topic]):
        create(link, [NewTopic(name=topic, partitions=1, configs=_CONFIGS)])


def key_of(topic_id: str, place: Place) -> bytes:
    """By the topic's id: one that was created anew gives out its offsets again."""
    return f"{topic_id}/{place.partition}/{place.offset}".encode()


def sent(link: Link, dead: str) -> frozenset[tuple[int, int]]:
    """(partition, offset) of each letter of the topic that was sent back."""
    if dead not in link.existing([dead]):
        return frozenset()
    topic_id = link.topic_ids([dead]).get(dead, "")
    found = set()
    for _, record in records(link, trail_topic(dead)):
        identity, partition, offset = _parts(record.key or b"")
        if identity == topic_id:
            found.add((partition, offset))
    return frozenset(found)


def _parts(key: bytes) -> tuple[str, int, int]:
    """What is no key of ours is of no topic."""
    identity, _, rest = key.decode(errors="replace").partition("/")
    partition, _, offset = rest.partition("/")
    if not (partition.isdecimal() and offset.isdecimal()):
        return "?", -1, -1
    return identity, int(partition), int(offset)
