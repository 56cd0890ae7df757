"""A client's view of one cluster: addresses, connections, metadata, who leads and coordinates what, and retries.

Everything above (raw produce and fetch, admin, producer, consumer) asks through here. Long polls and group calls get
connections of their own (`lane`), because an answer that is parked holds back all answers behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from random import Random
from typing import Final, Literal, Self, TypeVar

from msgspec import Struct

from tidelog.client.addresses import Address, parse_bootstrap
from tidelog.client.connection import Connection, Request
from tidelog.client.errors import BrokerError, ClientError, ConnectionLostError, MissingError, UnreachableError, check
from tidelog.client.metadata import ClusterMetadata, TopicInfo, TopicPartition
from tidelog.client.options import ClientOptions
from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Clock, Net
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse

T = TypeVar("T")
ResponseT = TypeVar("ResponseT", bound=Struct)
Lane = Literal["", "fetch", "group"]

ANY_NODE: Final = -1
CONTROLLER: Final = -2
_AUTO_CREATE_S: Final = 10.0


class Cluster:
    """An async context manager; it connects when it is first asked something."""

    def __init__(
        self,
        net: Net,
        clock: Clock,
        bootstrap: str | Sequence[str],
        *,
        random: Random | None = None,
        options: ClientOptions | None = None,
    ) -> None:
        self.net = net
        self.clock = clock
        self.random = random or Random()
        self.options = options or ClientOptions()
        self.metadata = ClusterMetadata()
        self._bootstrap = parse_bootstrap(bootstrap)
        self._connections: dict[tuple[int, Lane], Connection] = {}
        self._opening: dict[tuple[int, Lane], asyncio.Lock] = {}
        self._first: Connection | None = None
        self._has_answered = False
        self._topic_age_s: dict[str, float] = {}
        self.coordinators: dict[str, int] = {}
        """The coordinators that are known, by group: kept by client.coordinators."""
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._is_closed = True
        connections = list(self._connections.values())
        if self._first is not None:
            connections.append(self._first)
        self._connections.clear()
        self._first = None
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.wait_closed()

    # Asking

    async def call(
        self,
        node: int,
        request: Request,
        shape: type[Struct],
        response: type[ResponseT],
        *,
        highest: int | None = None,
        lane: Lane = "",
        timeout_s: float | None = None,
    ) -> ResponseT:
        """One request to a node (or ANY_NODE, CONTROLLER), no retry. `highest` caps the version."""
        connection = await self.connection(node, lane)
        version = connection.version_of(shape, highest)
        return await connection.call(request, response, version=version, timeout_s=timeout_s)

    async def connection(self, node: int, lane: Lane = "") -> Connection:
        if self._is_closed:
            raise ClientError("the client has been closed")
        if node == CONTROLLER:
            if not self.metadata.brokers:
                await self.refresh([])
            node = self.metadata.controller_id if self.metadata.controller_id in self.metadata.brokers else ANY_NODE
        if node == ANY_NODE:
            return await self._any_connection()
        return await self._node_connection(node, lane)

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        timeout_s: float | None = None,
        final: Collection[ErrorCode] = (),
    ) -> T:
        """Attempt until it succeeds, fails for good (with a code in `final`, too), or the time is up."""
        deadline_s = self.deadline_s(timeout_s)
        failures = 0
        while True:
            try:
                return await attempt()
            except ClientError as error:
                if isinstance(error, BrokerError) and error.code in final:
                    raise
                await self.pause_before_retry(error, failures, deadline_s)
                failures += 1

    def deadline_s(self, timeout_s: float | None = None) -> float:
        return self.clock.monotonic_s() + (timeout_s or self.options.api_timeout_s)

    async def pause_before_retry(self, error: ClientError, failures: int, deadline_s: float) -> None:
        """Raise the error if trying again is useless or too late, else wait the back-off."""
        if isinstance(error, UnreachableError) and not self._has_answered:
            deadline_s += self.options.bootstrap_timeout_s - self.options.api_timeout_s
        delay_s = self.options.backoff_s(failures, self.random)
        if not error.is_retriable or self.clock.monotonic_s() + delay_s > deadline_s:
            if error.is_retriable and failures:
                error.add_note(f"given up after {failures + 1} attempts")
            raise error
        await asyncio.sleep(delay_s)

    # Metadata

    async def refresh(self, topics: Iterable[str] | None, *, auto_create: bool = False) -> ClusterMetadata:
        """Ask any broker for the named topics (None: all there are), once."""
        names = None if topics is None else sorted(set(topics))
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=auto_create,
        )
        answer = await self.call(ANY_NODE, request, MetadataRequest, MetadataResponse)
        check(answer.error_code, "metadata")
        self.metadata = self.metadata.merged(answer, names)
        now_s = self.clock.monotonic_s()
        for topic in answer.topics:
            if topic.name is not None:
                self._topic_age_s[topic.name] = now_s
        return self.metadata

    async def topic(self, name: str, *, auto_create: bool = False) -> TopicInfo:
        """The topic, from the cache while it is young. A missing one is waited for only if it may be being created."""

        async def attempt() -> TopicInfo:
            await self.ensure_topics([name], auto_create=auto_create)
            try:
                return self.metadata.topic(name)
            except MissingError as error:
                raise BrokerError(error.code, error.subject) if auto_create else error from None

        return await self.retrying(attempt, timeout_s=_AUTO_CREATE_S if auto_create else None)

    async def ensure_topics(self, names: Iterable[str], *, auto_create: bool = False) -> None:
        """Refresh those of the topics that are unknown, stale, or were seen with an error or without a leader."""
        stale = [name for name in sorted(set(names)) if not self._is_fresh(name)]
        if stale:
            await self._refresh_patiently(stale, auto_create, lambda: all(map(self._exists, stale)))

    async def ensure_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """The same for partitions: one that is not known may have been added since."""
        wanted = sorted(set(partitions))
        stale = {at.topic for at in wanted if not self._is_fresh(at.topic) or not self._exists(at.topic, at.partition)}
        if stale:
            parts = [at for at in wanted if at.topic in stale]
            await self._refresh_patiently(sorted(stale), False, lambda: all(self._exists(*at) for at in parts))

    async def _refresh_patiently(self, names: list[str], auto_create: bool, is_found: Callable[[], bool]) -> None:
        """What was created a moment ago may not have reached the broker that is asked."""
        deadline_s = self.clock.monotonic_s() + self.options.missing_grace_s
        failures = 0
        await self.refresh(names, auto_create=auto_create)
        while not is_found() and self.clock.monotonic_s() < deadline_s:
            await asyncio.sleep(self.options.backoff_s(failures, self.random))
            failures += 1
            await self.refresh(names, auto_create=auto_create)

    def _exists(self, name: str, partition: int | None = None) -> bool:
        found = self.metadata.topics.get(name)
        if found is None or found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        return partition is None or partition in found.partitions or found.error_code != ErrorCode.NONE

    async def all_topics(self) -> ClusterMetadata:
        return await self.retrying(lambda: self.refresh(None))

    def forget_topic(self, name: str) -> None:
        """An answer showed that what is known of the topic is stale."""
        self._topic_age_s.pop(name, None)

    def fresh_topic(self, name: str) -> TopicInfo | None:
        """The topic if nothing needs to be asked."""
        return self.metadata.topics[name] if self._is_fresh(name) else None

    def _is_fresh(self, name: str) -> bool:
        found = self.metadata.topics.get(name)
        age_s = self.clock.monotonic_s() - self._topic_age_s.get(name, float("-inf"))
        if found is None or found.error_code != ErrorCode.NONE or age_s > self.options.metadata_max_age_s:
            return False
        return all(partition.leader in self.metadata.brokers for partition in found.partitions.values())

    # Connections

    async def _any_connection(self) -> Connection:
        """A connection that is open, else one to a broker that is known, else one to the bootstrap list."""
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        if self._first is not None and self._first.is_open:
            return self._first
        async with self._opening.setdefault((ANY_NODE, ""), asyncio.Lock()):
            if self._first is not None and self._first.is_open:
                return self._first
            self._first = await self._open_first()
            return self._first

    async def _open_first(self) -> Connection:
        known = [Address(broker.host, broker.port) for broker in self.metadata.brokers.values()]
        self.random.shuffle(known)
        # The list that was given comes first: in its order, as people put the nearest one in front.
        candidates = list(dict.fromkeys([*self._bootstrap, *known]))
        reasons: dict[str, str] = {}
        for address in candidates:
            try:
                connection = await Connection.open(self.net, address.host, address.port, self.options)
            except UnreachableError as error:
                reasons.update(error.reasons)
            except (ConnectionLostError, BrokerError, ProtocolError) as error:
                reasons[str(address)] = str(error)
            else:
                self._has_answered = True
                return connection
        raise UnreachableError(reasons)

    async def _node_connection(self, node: int, lane: Lane) -> Connection:
        key = (node, lane)
        found = self._connections.get(key)
        if found is not None and found.is_open:
            return found
        async with self._opening.setdefault(key, asyncio.Lock()):
            found = self._connections.get(key)
            if found is not None and found.is_open:
                return found
            if node not in self.metadata.brokers:
                await self.refresh([])
            broker = self.metadata.brokers.get(node)
            if broker is None:
                raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node}")
            connection = await Connection.open(self.net, broker.host, broker.port, self.options)
            self._connections[key] = connection
            return connection
