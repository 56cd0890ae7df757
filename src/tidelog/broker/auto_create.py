"""Topics that appear because somebody asked for them: auto.create.topics.enable, and the internal ones."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from tidelog.controller.topics import create_topics
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.create_topics import CreateTopicsRequest

if TYPE_CHECKING:
    from tidelog.broker.services import Services

_log = logging.getLogger("tidelog.auto_create")
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
_CLEAN_LEADERS_ONLY: Final = "unclean.leader.election.enable=false"
"""Kept for whoever has a choice of leaders; a single node has none."""
_Topic = CreateTopicsRequest.CreatableTopic
_Config = CreateTopicsRequest.CreatableTopicConfig


def auto_create(services: Services, names: list[str]) -> None:
    """Create what is allowed in the background; the client asks again."""
    if not services.config.boolean("auto.create.topics.enable"):
        names = [name for name in names if name in INTERNAL_TOPICS]
    if names:
        _submit(services, [_new_topic(services, name) for name in names])


def _log_failure(created: asyncio.Future[Any]) -> None:
    """Also of one that nobody waits for: a failure that nobody looks at would end the node as a bug of its own."""
    if created.cancelled():
        return
    if (error := created.exception()) is not None:
        _log.error("a topic that was asked for cannot be created: %s", error)
        return
    for topic in created.result().topics:
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            why = topic.error_message or ErrorCode(topic.error_code).name
            # Without an internal one no group works; what names clients think of is their own affair.
            level = logging.ERROR if topic.name in INTERNAL_TOPICS else logging.INFO
            _log.log(level, "the topic %s, which was asked for, cannot be created: %s", topic.name, why)


def create_internal_topic(services: Services, name: str) -> asyncio.Future[Any]:
    """Completes when it is there, or cannot be; no error if somebody was quicker."""
    return _submit(services, [_new_topic(services, name)])


def _submit(services: Services, topics: list[_Topic]) -> asyncio.Future[Any]:
    request = CreateTopicsRequest(topics=topics)
    created = services.controller.submit(
        lambda image: create_topics(request, image, services.config.values, services.random)
    )
    created.add_done_callback(_log_failure)
    return created


def _new_topic(services: Services, name: str) -> _Topic:
    if name not in INTERNAL_TOPICS:
        return _Topic(name=name, num_partitions=-1, replication_factor=-1)
    prefix = "offsets.topic" if name == OFFSETS_TOPIC else "transaction.state.log"
    integer = services.config.integer
    factor = min(integer(f"{prefix}.replication.factor"), max(len(services.image.live_brokers()), 1))
    configs = {"cleanup.policy": "compact", "segment.bytes": str(integer(f"{prefix}.segment.bytes"))}
    if name == OFFSETS_TOPIC:
        configs["compression.type"] = "producer"
    else:
        configs["compression.type"] = "uncompressed"
        configs["min.insync.replicas"] = str(min(integer(f"{prefix}.min.isr"), factor))
        configs |= dict([_CLEAN_LEADERS_ONLY.split("=")])
    return _Topic(
        name=name,
        num_partitions=integer(f"{prefix}.num.partitions"),
        replication_factor=factor,
        configs=[_Config(name=key, value=value) for key, value in configs.items()],
    )
