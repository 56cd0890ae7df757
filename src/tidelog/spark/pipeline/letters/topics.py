"""The topics of letters, made where they are missing, before a query subscribes to one of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError, ClientError
from tidelog.client.topics import NewTopic, create_topics
from tidelog.protocol.errors import ErrorCode
from tidelog.spark.link import Link

if TYPE_CHECKING:
    from tidelog.spark.pipeline.kinds.ingest import Ingest

CONFIGS: Final = {
    # A letter has the time of its record, by which retention would take it at once if that was old.
    "retention.ms": "-1",
    "message.timestamp.type": "CreateTime",
}


def ensure_topics(flow: Ingest, kafka: Mapping[str, str]) -> None:
    """With as many partitions as the flow's topics: a key that was alone in its partition is so among the letters."""
    assert flow.dead_letters is not None
    with Link(kafka) as link:
        there = link.existing(flow.dead_letters.topics)
        missing = [topic for topic in flow.dead_letters.topics if topic not in there]
        if missing:
            sources = link.existing(flow.topics or _matching(link, flow.pattern or ""))
            most = max((len(partitions) for partitions in sources.values()), default=1)
            create(link, [NewTopic(name=topic, partitions=most, configs=CONFIGS) for topic in missing])


def create(link: Link, topics: list[NewTopic]) -> None:
    """Returns when they can be used; another process may have made them at the same time."""
    for result in link.ask(lambda cluster: create_topics(cluster, topics)).values():
        is_there = isinstance(result, BrokerError) and result.code == ErrorCode.TOPIC_ALREADY_EXISTS
        if isinstance(result, ClientError) and not is_there:
            raise result
    for topic in topics:
        link.ask(lambda cluster, name=topic.name: _usable(cluster, name))  # type: ignore[misc]


async def _usable(cluster: Cluster, name: str) -> None:
    await cluster.topic(name, auto_create=True)


def _matching(link: Link, pattern: str) -> list[str]:
    return [topic for topic in link.topics() if re.fullmatch(pattern, topic)]
