"""Topics that appear because somebody asked for them: auto.create.topics.enable, and the internal ones."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from tidelog.controller.topics import create_topics
from tidelog.protocol.messages.create_topics import CreateTopicsRequest

if TYPE_CHECKING:
    from tidelog.broker.services import Services

_log = logging.getLogger("tidelog.auto_create")
_Topic = CreateTopicsRequest.CreatableTopic
_Config = CreateTopicsRequest.CreatableTopicConfig


def auto_create(services: Services, names: list[str]) -> None:
    """Create what is allowed in the background; the client asks again."""
    if not services.config.boolean("auto.create.topics.enable"):
        names = [name for name in names if name == "__consumer_offsets"]
    if names:
        _submit(services, [_new_topic(services, name) for name in names]).add_done_callback(_log_failure)


def _log_failure(created: asyncio.Future[Any]) -> None:
    """Nobody waits for it: a failure that nobody looks at would end the node as a bug of its own."""
    if not created.cancelled() and (error := created.exception()) is not None:
        _log.error("a topic that was asked for cannot be created: %s", error)


def create_offsets_topic(services: Services) -> asyncio.Future[Any]:
    """Completes when `__consumer_offsets` is there; no error if somebody was quicker."""
    return _submit(services, [_new_topic(services, "__consumer_offsets")])


def _submit(services: Services, topics: list[_Topic]) -> asyncio.Future[Any]:
    request = CreateTopicsRequest(topics=topics)
    return services.controller.submit(
        lambda image: create_topics(request, image, services.config.values, services.random)
    )


def _new_topic(services: Services, name: str) -> _Topic:
    if name != "__consumer_offsets":
        return _Topic(name=name, num_partitions=-1, replication_factor=-1)
    integer = services.config.integer
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(integer("offsets.topic.segment.bytes")),
    }
    factor = min(integer("offsets.topic.replication.factor"), max(len(services.image.live_brokers()), 1))
    return _Topic(
        name=name,
        num_partitions=integer("offsets.topic.num.partitions"),
        replication_factor=factor,
        configs=[_Config(name=key, value=value) for key, value in configs.items()],
    )
