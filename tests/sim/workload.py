"""Clients that write down what they were told, a node that is killed under them, and the rules that must hold.

The workload is W1 and W2 of a commit log: producers with acks=all, with and without idempotence, over several
partitions, a group that commits, topics that come and go. The rules: what was acknowledged is there, where it was said
to be; an offset has one value, for ever; no offset is skipped; an idempotent record is there once; one producer's
records keep their order; a committed position never goes back; the high watermark never goes back."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError, ClientError
from tidelog.client.fetching import FetchLimits, fetch
from tidelog.client.group_offsets import Committed, commit_offsets, fetch_offsets
from tidelog.client.metadata import TopicPartition
from tidelog.client.producing import produce_once
from tidelog.client.topics import NewTopic, create_topics
from tidelog.protocol.batch import RecordInput, build_batch, crc_is_valid, iter_headers, iter_records
from tidelog.protocol.compression import Codec
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.sim.net import NetOptions
from tidelog.testing.simulation import SimulatedWorld

PARTITIONS = 3
TOPIC = "work"


@dataclass
class History:
    """What the clients know: the outcome of every write is ok (with an offset) or unknown, never assumed to be a
    failure."""

    acknowledged: dict[TopicPartition, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    attempted: set[bytes] = field(default_factory=set)
    seen: dict[TopicPartition, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    commits: int = 0
    high_watermarks: dict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))

    def acknowledge(self, at: TopicPartition, base_offset: int, values: list[bytes]) -> None:
        for index, value in enumerate(values):
            self._one_value(self.acknowledged[at], at, base_offset + index, value)
            self._one_value(self.seen[at], at, base_offset + index, value)

    def read(self, at: TopicPartition, offset: int, value: bytes) -> None:
        assert value in self.attempted, f"{at}: offset {offset} holds {value!r}, which nobody wrote"
        self._one_value(self.seen[at], at, offset, value)

    def watermark(self, at: TopicPartition, offset: int) -> None:
        assert offset >= self.high_watermarks[at], f"{at}: the high watermark went back to {offset}"
        self.high_watermarks[at] = offset

    @staticmethod
    def _one_value(known: dict[int, bytes], at: TopicPartition, offset: int, value: bytes) -> None:
        assert known.setdefault(offset, value) == value, f"{at}: offset {offset} was {known[offset]!r} and is {value!r}"


class Producer:
    """One client with a name; it sends batch after batch and retries each until it knows, or gives it up as unknown."""

    def __init__(self, world: SimulatedWorld, history: History, name: str, *, idempotent: bool) -> None:
        self._world = world
        self._history = history
        self._name = name
        self._idempotent = idempotent
        self._random = Random(world.random.getrandbits(64))
        self._sequences: dict[TopicPartition, int] = defaultdict(int)
        self._producer_id = -1

    async def run(self, batches: int) -> None:
        async with self._world.client(self._name) as cluster:
            if self._idempotent:
                self._producer_id = await cluster.retrying(lambda: init_producer_id(cluster))
            for number in range(batches):
                at = TopicPartition(TOPIC, self._random.randrange(PARTITIONS))
                values = [f"{self._name}/{number}/{index}".encode() for index in range(self._random.randint(1, 4))]
                await self._send(cluster, at, values)
                await asyncio.sleep(self._random.expovariate(20))

    async def _send(self, cluster: Cluster, at: TopicPartition, values: list[bytes]) -> None:
        self._history.attempted.update(values)
        while True:
            try:
                done = await produce_once(cluster, at, self._batch(at, values))
            except ClientError as error:
                if not error.is_retriable:
                    raise
                if not self._idempotent:
                    return  # unknown: sending it again could write it twice
                await asyncio.sleep(self._random.uniform(0.01, 0.3))
            else:
                assert done.base_offset >= 0
                self._history.acknowledge(at, done.base_offset, values)
                self._sequences[at] += len(values)
                return

    def _batch(self, at: TopicPartition, values: list[bytes]) -> bytearray:
        records = [RecordInput(value.split(b"/")[0], value, self._world.clock.wall_ms()) for value in values]
        codec = self._random.choice([Codec.NONE, Codec.NONE, Codec.ZSTD, Codec.GZIP])
        if not self._idempotent:
            return build_batch(records, codec=codec)
        sequence = self._sequences[at]
        return build_batch(
            records, codec=codec, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence
        )


async def init_producer_id(cluster: Cluster) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    answer = await cluster.call(-1, request, InitProducerIdRequest, InitProducerIdResponse)
    if answer.error_code:
        raise BrokerError(answer.error_code)
    return answer.producer_id


class Committer:
    """Commits one position after the other and never repeats one: a commit without an answer may have happened, may
    never happen, and may yet happen when a delayed request arrives."""

    def __init__(self, world: SimulatedWorld, name: str) -> None:
        self._world = world
        self._name = name
        self._unknown: set[int] = set()
        self._acknowledged = 0
        self.acknowledged_count = 0

    async def run(self, commits: int) -> None:
        async with self._world.client(self._name) as cluster:
            for offset in range(1, commits + 1):
                try:
                    at = TopicPartition(TOPIC, 0)
                    result = await commit_offsets(cluster, self._name, {at: Committed(offset)}, timeout_s=0.001)
                except ClientError as error:
                    assert error.is_retriable, error
                    self._unknown.add(offset)
                else:
                    assert set(result.values()) == {None}, result
                    self._acknowledged = offset
                    self.acknowledged_count += 1
                await asyncio.sleep(self._world.random.expovariate(15))

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

    async def run(self) -> None:
        async with self._world.client(self._name) as cluster:
            positions = dict.fromkeys(partitions(), 0)
            while True:
                for at in partitions():
                    positions[at] = await read_once(cluster, self._history, at, positions[at], max_wait_ms=200)
                await asyncio.sleep(0.05)


def partitions() -> list[TopicPartition]:
    return [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]


async def read_once(cluster: Cluster, history: History, at: TopicPartition, offset: int, *, max_wait_ms: int) -> int:
    """Read on from the offset; the next one."""
    limits = FetchLimits(max_wait_ms=max_wait_ms, partition_max_bytes=300)
    found = await fetch(cluster, at, offset, limits)
    history.watermark(at, found.high_watermark)
    for position, header in iter_headers(found.records):
        batch = found.records[position : position + header.size]
        assert crc_is_valid(batch, header), f"{at}: a damaged batch was served"
        for record in iter_records(batch, header):
            if record.offset < offset:
                continue
            assert record.offset == offset, f"{at}: offset {record.offset} follows {offset - 1}"
            assert record.offset < found.high_watermark
            history.read(at, record.offset, record.value or b"")
            offset += 1
    return offset


async def chaos(world: SimulatedWorld, kills: int) -> None:
    """Kill the node at random times and at random disk operations, and start it again after a while."""
    for _ in range(kills):
        if world.random.random() < 0.5:
            # In the middle of a write: the next start finds a torn batch.
            world.disk.faults.crash_at = world.disk.operations + world.random.randint(1, 40)
        await world.crash_or(0.05, 3.0)
        world.kill()
        await world.pause(0, 1.0)
        while not await world.start():
            await world.pause(0, 0.2)


def options(seed: int) -> NetOptions:
    random = Random(f"{seed}-options")
    return NetOptions(
        cut_connection=random.choice([0, 0, 0.002, 0.01]),
        delay=random.choice([0, 0.01]),
        delay_ms_max=random.choice([200, 5000]),
        refuse_connect=random.choice([0, 0.05]),
    )


async def run_workload(seed: int, *, batches: int = 25, kills: int = 4) -> History:
    small = {"log.index.interval.bytes": "64", "metadata.log.max.record.bytes.between.snapshots": "400"}
    world = SimulatedWorld(seed, net=options(seed), config=small)
    history = History()
    assert await world.start()
    async with world.client("admin") as admin:
        topic = NewTopic(name=TOPIC, partitions=PARTITIONS, configs={"internal.segment.bytes": "1500"})
        created = (await create_topics(admin, [topic]))[TOPIC]
        # A client that lost the first answer hears that the topic is there.
        assert not isinstance(created, BrokerError) or created.code == ErrorCode.TOPIC_ALREADY_EXISTS, created
    reader = asyncio.ensure_future(Reader(world, history, "reader").run())
    producers = [Producer(world, history, f"p{index}", idempotent=index > 0) for index in range(3)]
    committer = Committer(world, "committer")
    await asyncio.gather(
        chaos(world, kills), committer.run(batches), *(producer.run(batches) for producer in producers)
    )
    assert not reader.done(), reader.exception()
    reader.cancel()
    if world.random.random() < 0.5:
        await world.stop()
    else:
        world.kill()
    assert await world.start()
    async with world.client("judge") as cluster:
        await check_all(cluster, history)
        await committer.check(cluster)
    history.commits = committer.acknowledged_count
    await world.stop()
    return history


async def check_all(cluster: Cluster, history: History) -> None:
    """The final reads: everything acknowledged is there, idempotent records once, in the order they were sent."""
    for at in partitions():
        offset = 0
        while (following := await read_once(cluster, history, at, offset, max_wait_ms=0)) != offset:
            offset = following
        final = history.seen[at]
        assert offset == history.high_watermarks[at]
        for known, value in history.acknowledged[at].items():
            assert known < offset and final[known] == value, f"{at}: {value!r}, acknowledged at {known}, is lost"
        assert max(final, default=-1) < offset, f"{at}: offset {max(final)} was seen once and is gone"
        check_once_and_in_order(at, [final[known] for known in range(offset)])


def check_once_and_in_order(at: TopicPartition, values: list[bytes]) -> None:
    last: dict[bytes, tuple[int, int]] = {}
    for value in values:
        name, number, index = value.split(b"/")
        place = (int(number), int(index))
        assert place > last.get(name, (-1, -1)), f"{at}: {value!r} is there twice or out of order"
        last[name] = place
