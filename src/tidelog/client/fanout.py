"""One question about many things that live on different brokers: split it, ask all at once, repeat what failed.

Used for partitions (asked of their leaders) and for groups (asked of their coordinators).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError, ClientError
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.errors import ErrorCode

K = TypeVar("K")
T = TypeVar("T")
Ask = Callable[[int, Sequence[K]], Awaitable[Mapping[K, T | ClientError]]]


class Places(Protocol[K]):
    """Where things live."""

    async def locate(self, items: Sequence[K]) -> Mapping[K, int | ClientError]:
        """A node for each item; an error that is not retriable is final."""
        ...

    def forget(self, item: K) -> None:
        """The node that was named did not serve the item: look again next time."""
        ...


async def fan_out(cluster: Cluster, places: Places[K], items: Iterable[K], ask: Ask[K, T]) -> dict[K, T | ClientError]:
    """A result or an error for every item; the call itself fails only when no broker can be reached."""
    pending: list[K] = list(dict.fromkeys(items))
    results: dict[K, T | ClientError] = {}
    deadline_s = cluster.deadline_s()
    failures = 0
    while pending:
        answers = await _ask_once(cluster, places, pending, ask)
        retry = {
            item: error for item, error in answers.items() if isinstance(error, ClientError) and error.is_retriable
        }
        results.update(answers)
        pending = list(retry)
        if not pending:
            break
        for item in pending:
            places.forget(item)
        try:
            await cluster.pause_before_retry(next(iter(retry.values())), failures, deadline_s)
        except ClientError:
            break
        failures += 1
    return results


async def _ask_once(
    cluster: Cluster, places: Places[K], items: Sequence[K], ask: Ask[K, T]
) -> dict[K, T | ClientError]:
    answers: dict[K, T | ClientError] = {}
    by_node: dict[int, list[K]] = {}
    for item, place in (await places.locate(items)).items():
        if isinstance(place, ClientError):
            answers[item] = place
        else:
            by_node.setdefault(place, []).append(item)
    found = await asyncio.gather(*(_guarded(ask, node, part) for node, part in by_node.items()))
    for part in found:
        answers.update(part)
    for item in items:
        answers.setdefault(item, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(item), "the broker left it out"))
    return answers


async def _guarded(ask: Ask[K, T], node: int, items: Sequence[K]) -> Mapping[K, T | ClientError]:
    try:
        return await ask(node, items)
    except ClientError as error:
        return dict.fromkeys(items, error)


class Leaders:
    """The places of partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def locate(self, items: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | ClientError]:
        try:
            await self._cluster.ensure_partitions(items)
        except ClientError as error:
            return dict.fromkeys(items, error)
        return {item: self._leader(item) for item in items}

    def _leader(self, item: TopicPartition) -> int | ClientError:
        try:
            return self._cluster.metadata.leader(item)
        except BrokerError as error:
            return error

    def forget(self, item: TopicPartition) -> None:
        self._cluster.forget_topic(item.topic)
