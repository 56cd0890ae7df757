"""Clients that write down in a History what they were told: producers, a committing group, readers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from random import Random

from tests.sim.history import PARTITIONS, TOPIC, History, partitions, read_once
from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError, ClientError
from tidelog.client.group_offsets import Committed, commit_offsets, fetch_offsets
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, list_offsets
from tidelog.client.options import ClientOptions
from tidelog.client.producing import produce_once
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.compression import Codec
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.testing.simulation import SimulatedWorld


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How a producer works. Only acks=all is a promise; what is refused for lack of room did not happen."""

    idempotent: bool = False
    acks: int = -1
    storage_error_is_refusal: bool = False
    padding: int = 0
    """Bytes that make each value longer, for those who fill a disk."""


class Producer:
    """One client with a name; it sends batch after batch and retries each until it knows, or gives it up as unknown."""

    def __init__(self, world: SimulatedWorld, history: History, name: str, kind: Kind) -> None:
        self._world = world
        self._history = history
        self._name = name
        self._kind = kind
        self._random = Random(world.random.getrandbits(64))
        self._sequences: dict[TopicPartition, int] = defaultdict(int)
        self._producer_id = -1

    async def run(self, batches: int) -> None:
        async with self._world.client(self._name) as cluster:
            if self._kind.idempotent:
                self._producer_id = await init_producer_id(cluster)
            for number in range(batches):
                at = TopicPartition(TOPIC, self._random.randrange(PARTITIONS))
                count = self._random.randint(1, 4)
                padding = b"." * self._kind.padding
                values = [b"%s/%d/%d/%s" % (self._name.encode(), number, index, padding) for index in range(count)]
                await self._send(cluster, at, values)
                await asyncio.sleep(self._random.expovariate(20))

    async def _send(self, cluster: Cluster, at: TopicPartition, values: list[bytes]) -> None:
        self._history.attempted.update(values)
        while True:
            try:
                done = await produce_once(cluster, at, self._batch(at, values), acks=self._kind.acks)
            except ClientError as error:
                self._history.failed(error)
                if not error.is_retriable:
                    raise
                if not self._kind.idempotent:
                    # Unknown: sending it again could write it twice.
                    if self._kind.storage_error_is_refusal and is_storage_error(error):
                        self._history.refused.update(values)
                    return
                await asyncio.sleep(self._random.uniform(0.01, 0.3))
            else:
                if self._kind.acks == -1:
                    assert done.base_offset >= 0
                    self._history.acknowledge(at, done.base_offset, values)
                self._sequences[at] += len(values)
                return

    def _batch(self, at: TopicPartition, values: list[bytes]) -> bytearray:
        records = [RecordInput(value.split(b"/")[0], value, self._world.clock.wall_ms()) for value in values]
        codec = self._random.choice([Codec.NONE, Codec.NONE, Codec.ZSTD, Codec.GZIP])
        if not self._kind.idempotent:
            return build_batch(records, codec=codec)
        sequence = self._sequences[at]
        return build_batch(
            records, codec=codec, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence
        )


def is_storage_error(error: ClientError) -> bool:
    return isinstance(error, BrokerError) and error.code == ErrorCode.KAFKA_STORAGE_ERROR


async def init_producer_id(cluster: Cluster) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)

    async def attempt() -> int:
        answer = await cluster.call(-1, request, InitProducerIdRequest, InitProducerIdResponse)
        if answer.error_code:
            raise BrokerError(answer.error_code)
        return answer.producer_id

    return await cluster.retrying(attempt)


class Committer:
    """Commits one position after the other and never repeats one: a commit without an answer may have happened, may
    never happen, and may yet happen when a delayed request arrives."""

    def __init__(self, world: SimulatedWorld, history: History, name: str) -> None:
        self._world = world
        self._history = history
        self._name = name
        self._unknown: set[int] = set()
        self._acknowledged = 0

    async def run(self, commits: int) -> None:
        async with self._world.client(self._name) as cluster:
            for offset in range(1, commits + 1):
                await self._commit(cluster, offset)
                await asyncio.sleep(self._world.random.expovariate(15))

    async def _commit(self, cluster: Cluster, offset: int) -> None:
        at = TopicPartition(TOPIC, 0)
        try:
            error = (await commit_offsets(cluster, self._name, {at: Committed(offset)}, timeout_s=0.001))[at]
        except ClientError as raised:
            error = raised
        if error is None:
            self._acknowledged = offset
            self._history.commits += 1
            return
        assert error.is_retriable, error
        self._history.failed(error)
        self._unknown.add(offset)

    async def check(self, cluster: Cluster) -> None:
        found = (await fetch_offsets(cluster, self._name)).get(TopicPartition(TOPIC, 0), Committed(0)).offset
        assert found in {self._acknowledged, *self._unknown}, (
            f"{self._name} committed {self._acknowledged}, found {found}"
        )


class Reader:
    """Reads every partition again and again from where it stood, and checks what it sees against what is known."""

    def __init__(self, world: SimulatedWorld, history: History, name: str) -> None:
        self._world = world
        self._history = history
        self._name = name
        self.reads = 0
        """How many records it has got."""

    async def run(self) -> None:
        # In a hurry: what is read in the moment before a crash is what counts.
        options = ClientOptions(
            client_id=self._name,
            connect_timeout_s=0.5,
            request_timeout_s=1.0,
            bootstrap_timeout_s=60.0,
            api_timeout_s=60.0,
            retry_backoff_ms_max=100.0,
        )
        async with self._world.client(self._name, options) as cluster:
            positions = dict.fromkeys(partitions(), 0)
            while True:
                for at in partitions():
                    positions[at] = await self._read(cluster, at, positions[at])
                await asyncio.sleep(0.05)

    async def _read(self, cluster: Cluster, at: TopicPartition, position: int) -> int:
        try:
            following = await read_once(cluster, self._history, at, position, max_wait_ms=200)
        except BrokerError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            start = (await list_offsets(cluster, dict.fromkeys([at], EARLIEST)))[at].offset
            assert start > position, f"{at}: position {position} is gone, and the log starts at {start}"
            return start
        self.reads += following - position
        return following
