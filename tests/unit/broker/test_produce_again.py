"""The short way of a Produce that is like the one before, held against the long one: same bytes, same effects."""

from __future__ import annotations

import asyncio
import struct
from random import Random

import pytest
from crc32c import crc32c

from tests.unit.broker.transacting import FakeVerifier, batch, end, partition_of
from tests.unit.broker.twins import TOPICS, Twin, twins
from tests.unit.broker.virtual import Peer, on_node
from tidelog.broker.produce_again import _MARKS, ProduceAgain
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.replication import validate
from tidelog.sim.disk import DiskFaults
from tidelog.sim.loop import run
from tidelog.testing.simulation import SimulatedWorld

VERSIONS = range(3, 14)
LEARNED = range(9, 14)


@pytest.fixture(autouse=True)
def long_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The long way must not take the short check of a batch, or both would believe the same mistake."""
    monkeypatch.setattr(validate, "plain_header", lambda *_: None)


class Producer:
    """Sends like requests, most of them right, with batches of all kinds."""

    def __init__(self, random: Random, topic_ids: dict[str, bytes]) -> None:
        self._random = random
        self.version = random.choice([*LEARNED, *LEARNED, *LEARNED, *VERSIONS])
        self._acks = random.choice([-1, -1, 1, 1, 1, 0, 2])
        self._timeout_ms = random.choice([1000, 0])
        self._client_id = random.choice(["peer", "p", "", None])
        self._topic = random.choice(["plain"] * 6 + [*TOPICS])
        self._topic_id = topic_ids[self._topic]
        self._sequence = 0
        self._producer_id = random.choice([-1, -1, random.randrange(1000)])

    def frame(self) -> bytes:
        random = self._random
        partitions = [
            ProduceRequest.PartitionProduceData(index=random.choice([0, 0, 0, 0, 1, 1, 7]), records=self._batch())
            for _ in range(random.choice([1] * 9 + [2]))
        ]
        shape = ProduceRequest.TopicProduceData(partition_data=partitions)
        if self.version >= 13:
            shape.topic_id = self._topic_id
        else:
            shape.name = self._topic
        asked = ProduceRequest(acks=self._acks, timeout_ms=self._timeout_ms, topic_data=[shape])
        frame = bytearray(encode_request(asked, self.version, random.randrange(1 << 31), self._client_id))
        if random.random() < 0.15:
            self._disturb(frame)
        return len(frame[4:]).to_bytes(4, "big") + frame[4:]

    def _batch(self) -> bytes:
        """Of sizes whose length takes one, two and three bytes."""
        random = self._random
        size = random.choice([1, 20, 55, 56, 57, 58, 100, 350, 3000, *range(16_309, 16_318), 20_000])
        key, count = random.choice([None, b"k"]), random.choice([1, 1, 3])
        producer = {}
        if self._producer_id >= 0:
            wrong = random.choice([0] * 19 + [1])
            producer = {"producer_id": self._producer_id, "producer_epoch": 0, "base_sequence": self._sequence + wrong}
            self._sequence += count * random.choice([1] * 9 + [0])
        time = random.choice([1] * 18 + [-1, 1 << 50])
        made = build_batch([RecordInput(key, bytes(size), time) for _ in range(count)], **producer)
        if random.random() < 0.15:
            layout, at = random.choice([(">h", 21), (">i", 23), (">q", 43), (">h", 51), (">i", 53), (">i", 57)])
            struct.pack_into(layout, made, at, random.choice([-1, 0, 1, 2, 5, 8, 0x10, 0x20, 0x48, 0x1000]))
            struct.pack_into(">I", made, 17, crc32c(made[21:]))
        if random.random() < 0.05:
            at = random.choice([9, 10, 11, 16, 17, 20, len(made) - 1])
            made[at] = random.choice([0, 1, made[at] ^ 1])
        return bytes(made)

    def _disturb(self, frame: bytearray) -> None:
        """Another byte or two, mostly where the header, the lengths or the tags are; or cut short, or longer."""
        random = self._random
        places = [
            *range(4, 8),
            *range(12, 24),
            *range(20, min(len(frame), 70)),
            *[len(frame) - 1 - n for n in (0, 1, 2)],
        ]
        for _ in range(random.choice([1, 1, 1, 2])):
            at = random.choice(places)
            frame[at] = random.choice([0, 1, frame[at] ^ 1, frame[at] ^ 0x80, random.randrange(256)])
        if random.random() < 0.1:
            del frame[random.randrange(20, len(frame)) :]
        if random.random() < 0.1:
            frame += bytes(3)


@pytest.mark.parametrize("seed", range(12))
def test_both_ways_answer_the_same_bytes_and_do_the_same(seed: int) -> None:
    async def play() -> None:
        random = Random(seed)
        short, long, topic_ids = await twins()
        assert [t.topic_id for _, t in sorted(short.node.publisher.image.topics.items())] == [
            t.topic_id for _, t in sorted(long.node.publisher.image.topics.items())
        ], "the same seed makes the same topics"
        for number in range(300):
            if number % 20 == 0:
                producer = Producer(random, topic_ids)
                short.reconnect()
                long.reconnect()
            frame = producer.frame()
            assert short.send(frame) == long.send(frame), (seed, number)
        assert short.state() == long.state()
        assert short.short_ways > 10 and long.short_ways == 0
        await short.world.stop()
        await long.world.stop()

    run(play())


@pytest.mark.parametrize("seed", range(4))
def test_both_ways_are_the_same_in_transactions(seed: int) -> None:
    """Three producers that take turns; now and then one ends its transaction, or the coordinator says no."""

    async def play() -> None:
        random = Random(seed)
        short, long, _ = await twins()
        both = (short, long)
        verifiers = [FakeVerifier(twin.node) for twin in both]
        sequences = [0, 0, 0]
        for number in range(300):
            which = random.choice([0, 0, 0, 0, 1, 2])
            if random.random() < 0.1:
                commit = random.random() < 0.5
                assert len({tuple(end(twin.node, which, commit=commit, topic="plain")) for twin in both}) == 1
            code = random.choice([ErrorCode.NONE] * 9 + [ErrorCode.TRANSACTION_ABORTABLE])
            for verifier in verifiers:
                verifier.code = code
            wrong = random.choice([0] * 19 + [1])
            made = batch(which, sequence=sequences[which] + wrong, attributes=random.choice([16] * 19 + [0]))
            data = ProduceRequest.PartitionProduceData(index=0, records=made)
            shape = ProduceRequest.TopicProduceData(name="plain", partition_data=[data])
            name = f"id-{random.choice([0] * 9 + [1])}"
            asked = ProduceRequest(transactional_id=name, acks=1, timeout_ms=1000, topic_data=[shape])
            frame = encode_request(asked, 12, number, "peer")
            log = partition_of(short.node, topic="plain").log
            before = log.log_end_offset
            assert short.send(frame) == long.send(frame), (seed, number)
            sequences[which] += log.log_end_offset - before
        assert verifiers[0].asked == verifiers[1].asked
        assert short.state() == long.state()
        assert short.short_ways > 50 and long.short_ways == 0
        await short.world.stop()
        await long.world.stop()

    run(play())


def one(topic: str = "plain", *, size: int = 100, count: int = 1, acks: int = 1, correlation_id: int = 1) -> bytes:
    made = build_batch([RecordInput(None, b"x" * size, 1)])
    struct.pack_into(">i", made, 23, count - 1)
    struct.pack_into(">i", made, 57, count)
    struct.pack_into(">I", made, 17, crc32c(made[21:]))
    data = ProduceRequest.PartitionProduceData(index=0, records=bytes(made))
    shape = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    return encode_request(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[shape]), 12, correlation_id, "peer")


LENGTH_AT = 4 + 10 + len("peer") + 1 + 1 + 2 + 4 + 1 + 1 + len("plain") + 1 + 4


def test_a_length_that_does_not_fit_the_frame_and_another_api_are_noticed() -> None:
    async def play() -> None:
        short, long, _ = await twins()
        for size, places in ((20, [0]), (100, [0, 1]), (20_000, [0, 1, 2])):
            for place in places:
                frame = bytearray(one(size=size))
                frame[LENGTH_AT + place] ^= 1
                assert_same(short, long, bytes(frame))
        for api_key in range(4):
            assert_same(short, long, one()[:4] + struct.pack(">hh", api_key, 12) + one()[8:])
        for version in VERSIONS:
            assert_same(short, long, one()[:6] + struct.pack(">h", version) + one()[8:])
        assert_same(short, long, one(count=0))
        assert short.state() == long.state()

    run(play())


def assert_same(short: Twin, long: Twin, frame: bytes) -> None:
    """After a request that is as it should be, on the same connection."""
    assert short.send(one()) == long.send(one())
    assert isinstance(short.peer.connection.again, ProduceAgain)
    assert short.send(frame) == long.send(frame)


def test_a_full_disk_is_told_and_left_as_it_was() -> None:
    async def play() -> None:
        short, long, _ = await twins()
        for acks in (1, -1, 0):
            for twin in (short, long):
                twin.send(one(acks=acks))
                twin.world.disk.faults = DiskFaults(capacity_bytes=0)
            assert short.send(one(acks=acks)) == long.send(one(acks=acks))
            for twin in (short, long):
                twin.world.disk.faults = DiskFaults()
        assert short.state() == long.state()
        assert short.state()[0] == long.state()[0] != []

    run(play())


def test_acks_all_waits_for_the_sync_and_answers_the_same() -> None:
    async def play() -> None:
        short, long, _ = await twins(mode="synced")
        for number in range(5):
            for twin in (short, long):
                assert twin.send(one(acks=-1, correlation_id=number)) == (b"", "")
            await asyncio.sleep(0.1)
            found = [b"".join(twin.peer.transport.written) for twin in (short, long)]
            assert found[0] == found[1] != b""
            for twin in (short, long):
                twin.peer.transport.written.clear()
        assert short.short_ways == 4
        assert short.state() == long.state()

    run(play())


@pytest.mark.parametrize("end", ["time", "failure"])
def test_acks_all_that_is_never_committed_is_told_the_same(end: str) -> None:
    async def play() -> None:
        short, long, _ = await twins(mode="synced")
        for twin in (short, long):
            twin.send(one(acks=-1))
        await asyncio.sleep(1)
        assert short.receive() == long.receive()
        for twin in (short, long):
            twin.world.disk.faults = DiskFaults(sync_delay_s=5)
            assert twin.send(one(acks=-1, correlation_id=7)) == twin.send(one(acks=-1, correlation_id=8)) == (b"", "")
        if end == "failure":
            for twin in (short, long):
                partition = twin.node.partitions.get("plain", 0)
                assert partition is not None
                partition.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        await asyncio.sleep(1.5)
        answer = short.receive()
        assert answer == long.receive() and len(answer[0]) > 100
        assert len(short.node.services.deadlines) == 0
        await asyncio.sleep(10)
        assert short.receive() == long.receive() == (b"", "")
        assert short.state() == long.state()

    run(play())


def test_a_connection_that_dies_does_not_hear_of_its_commit() -> None:
    async def play() -> None:
        short, _, _ = await twins(mode="synced")
        for _ in range(2):
            short.send(one(acks=-1))
        peer = short.peer
        short.reconnect()
        assert len(short.node.services.deadlines) == 0
        await asyncio.sleep(1)
        assert peer.transport.written == []

    run(play())


def test_the_second_request_of_a_connection_goes_the_short_way() -> None:
    async def play() -> None:
        short, _, _ = await twins()
        short.send(one())
        assert isinstance(short.peer.connection.again, ProduceAgain)
        (api,) = [api for api in short.node.services.apis if api.name == "Produce"]
        handled = []
        handle = api.handle
        api.handle = lambda request, ctx: handled.append(request) or handle(request, ctx)
        answers = {short.send(one(correlation_id=number))[0] for number in range(5)}
        assert (len(answers), handled) == (5, [])
        short.send(one("small"))
        assert len(handled) == 1

    run(play())


@on_node
async def test_an_id_with_the_bytes_of_a_mark_has_no_short_way_and_does_no_harm(
    world: SimulatedWorld, peer: Peer
) -> None:
    """Anybody can send one: it must not reach an assertion."""
    marked = struct.pack(">iiii", *[_MARKS[0][1]] * 4)
    data = ProduceRequest.PartitionProduceData(index=0, records=bytes(build_batch([RecordInput(None, b"v", 1)])))
    topic = ProduceRequest.TopicProduceData(topic_id=marked, partition_data=[data])
    answer = await peer.call(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), 13, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert peer.connection.again is None and world.node is not None and world.node.is_ready
