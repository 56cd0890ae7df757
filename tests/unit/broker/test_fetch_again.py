"""The short way of a Fetch that is like the one before, held against the long one: same bytes, same effects."""

from __future__ import annotations

import asyncio
import struct
from random import Random
from typing import Any

import pytest

from tests.unit.broker.twins import Twin, twins
from tests.unit.broker.virtual import Peer
from tidelog.broker.fetch_again import FetchAgain
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.codec import decode
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.frame import encode_request, read_response_head
from tidelog.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.sim.loop import run

VERSIONS = range(4, 19)


class Consumer:
    """Sends the requests of one consumer: with a session or without, most of them in order."""

    def __init__(self, random: Random, topic_ids: dict[str, bytes]) -> None:
        self._random = random
        self.version = random.choice([*VERSIONS, 12, 13, 17, 17])
        self._wants_session = self.version >= 7 and random.random() < 0.8
        self._topic = random.choice(["plain", "plain", "stamped"])
        self._topic_id = topic_ids[self._topic]
        self._count = random.choice([1, 1, 2])
        self._fields: dict[str, Any] = {
            "max_wait_ms": random.choice([0, 0, 100, 0x5A17C1DE]),
            "min_bytes": random.choice([0, 1, 1, 300]),
            "max_bytes": random.choice([1 << 20, 1 << 20, 150]),
            "isolation_level": random.choice([0, 1]),
            "rack_id": random.choice(["", "", "r"]) if self.version >= 11 else "",
        }
        self._partition_max_bytes = random.choice([1 << 20, 1 << 20, 1, 400])
        self._leader_epoch = random.choice([-1, 0, 0]) if self.version >= 9 else -1
        self._client_id = random.choice(["peer", None])
        self.offset = 0
        self._session = (0, 0)

    def frame(self) -> bytes:
        random = self._random
        session_id, epoch = self._session if self._wants_session else (0, -1)
        moved = epoch <= 0 or random.random() < 0.6
        request = FetchRequest(
            session_id=session_id,
            session_epoch=epoch + random.choice([0] * 30 + [1]) if epoch > 0 else epoch,
            topics=[self._asked()] if moved else [],
            **self._fields,
        )
        if epoch > 0:
            self._session = (session_id, epoch + 1)
            if random.random() < 0.03:
                forgotten = FetchRequest.ForgottenTopic(partitions=[0])
                self._name(forgotten)
                request.forgotten_topics_data = [forgotten]
        frame = bytearray(encode_request(request, self.version, random.randrange(1 << 31), self._client_id))
        if random.random() < 0.08:
            at = random.choice([*range(4, 8), *range(12, len(frame))])
            frame[at] = random.choice([0, 1, frame[at] ^ 1, random.randrange(256)])
        if random.random() < 0.03:
            frame += bytes(2)
        return struct.pack(">i", len(frame) - 4) + frame[4:]

    def _asked(self) -> FetchRequest.FetchTopic:
        partitions = [
            FetchRequest.FetchPartition(
                partition=index,
                fetch_offset=self.offset + self._random.choice([0] * 20 + [1000, -5]),
                current_leader_epoch=self._leader_epoch + self._random.choice([0] * 30 + [1] * (self.version >= 9)),
                partition_max_bytes=self._partition_max_bytes,
            )
            for index in range(self._count)
        ]
        asked = FetchRequest.FetchTopic(partitions=partitions)
        self._name(asked)
        return asked

    def _name(self, asked: FetchRequest.FetchTopic | FetchRequest.ForgottenTopic) -> None:
        if self.version >= 13:
            asked.topic_id = self._topic_id
        else:
            asked.topic = self._topic

    def hear(self, answer: bytes) -> None:
        """Remember the session, and read on behind what came."""
        if len(answer) < 8:
            return
        size = int.from_bytes(answer[:4], "big")
        if len(answer) != size + 4:
            return
        _, position = read_response_head(1, self.version, answer[4:])
        try:
            response = decode(FetchResponse, self.version, answer[4:], position)
        except ProtocolError:
            return  # a byte of the request said another version
        if response.error_code != ErrorCode.NONE:
            self._session = (0, 0)
        elif self._session == (0, 0) and response.session_id:
            self._session = (response.session_id, 1)
        for topic in response.responses:
            for data in topic.partitions:
                self.offset = self._random.choice([max(data.high_watermark, 0), self.offset, self.offset + 1])


def write(writers: list[Peer], topic: str, size: int) -> None:
    for writer in writers:
        batch = bytes(build_batch([RecordInput(None, bytes(size), 1)]))
        assert writer.produce_batch(topic, batch, acks=1).error_code == ErrorCode.NONE


def state(twin: Twin) -> list[Any]:
    sessions = []
    for known in twin.node.services.fetch_sessions._sessions.values():
        sessions.append((known.session_id, known.epoch, known.used_s))
        for key, fetched in known.partitions.items():
            sessions.append((key, fetched.high_watermark, fetched.log_start_offset, repr(fetched.wanted)))
    services = twin.node.services
    return [twin.state()[::2], sessions, services.ledger.parked_bytes.used, len(services.deadlines)]


async def turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


async def same_answers(short: Twin, long: Twin, frame: bytes, random: Random, writers: list[Peer]) -> bytes:
    """Send to both, and let time or a producer end the wait."""
    answer = short.send(frame)
    assert answer == long.send(frame)
    if not answer[0] and not answer[1] and random.random() < 0.9:
        if random.random() < 0.7:
            write(writers, "plain", 100)
            write(writers, "stamped", 1)
            await turns()
        answer = short.receive()
        assert answer == long.receive()
        if not answer[0]:
            await asyncio.sleep(0.2)
            answer = short.receive()
            assert answer == long.receive()
    return answer[0]


@pytest.mark.parametrize("mode", ["page-cache", "synced"])
@pytest.mark.parametrize("seed", range(8))
def test_both_ways_answer_the_same_bytes_and_do_the_same(seed: int, mode: str) -> None:
    async def play() -> None:
        random = Random(seed)
        short, long, topic_ids = await twins(mode=mode)
        writers = [Peer(twin.node) for twin in (short, long)]
        for number in range(400):
            if number % 40 == 0:
                consumer = Consumer(random, topic_ids)
                short.reconnect()
                long.reconnect()
            if random.random() < 0.1:
                write(writers, "plain", random.choice([10, 100, 5000]))
            consumer.hear(await same_answers(short, long, consumer.frame(), random, writers))
            assert state(short) == state(long), (seed, number)
        await asyncio.sleep(1)
        assert short.receive() == long.receive()
        for twin in (short, long):
            twin.peer.lose()
        assert state(short) == state(long)
        assert short.node.services.ledger.parked_bytes.used == 0
        assert short.short_ways > 30 and long.short_ways == 0
        await short.world.stop()
        await long.world.stop()

    run(play())


def test_the_same_request_again_goes_the_short_way_and_another_does_not() -> None:
    async def play() -> None:
        short, _, topic_ids = await twins()
        writer = Peer(short.node)
        write([writer], "plain", 10)
        (api,) = [api for api in short.node.services.apis if api.name == "Fetch"]
        handled = []
        handle = api.handle
        api.handle = lambda request, ctx: handled.append(request) or handle(request, ctx)

        def ask(session_id: int, epoch: int, offset: int | None) -> FetchResponse:
            topics = []
            if offset is not None:
                wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
                topics = [FetchRequest.FetchTopic(topic_id=topic_ids["plain"], partitions=[wanted])]
            short.peer.send(FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics), 17)
            return short.peer.receive(FetchResponse)

        session_id = ask(0, 0, 0).session_id
        assert ask(session_id, 1, 1).error_code == ErrorCode.NONE
        assert isinstance(short.peer.connection.again, FetchAgain)
        assert len(handled) == 2
        write([writer], "plain", 10)
        assert len(ask(session_id, 2, None).responses[0].partitions[0].records or b"") > 61
        assert len(ask(session_id, 3, 1).responses[0].partitions[0].records or b"") > 61
        # The writer's high watermark is known by now.
        assert ask(session_id, 4, 2).responses == ask(session_id, 5, None).responses == []
        assert len(handled) == 2
        assert ask(session_id, 5, None).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert len(handled) == 3

    run(play())


def one(offset: int, *, version: int = 16, max_wait_ms: int = 0, min_bytes: int = 1) -> bytes:
    """Without a session."""
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    topic = FetchRequest.FetchTopic(partitions=[wanted], topic="plain" if version < 13 else "")
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=[topic])
    return encode_request(request, version, 7, "peer")


@pytest.mark.parametrize("version", [11, 12])
def test_records_of_every_length_are_framed_the_same(version: int) -> None:
    async def play() -> None:
        short, long, _ = await twins()
        writers = [Peer(twin.node) for twin in (short, long)]
        sizes = [*range(50, 62), *range(3925, 3945), *range(16_305, 16_325), 100_000]
        for size in sizes:
            write(writers, "plain", size)
        before = short.short_ways
        for offset in range(len(sizes)):
            assert short.send(one(offset, version=version)) == long.send(one(offset, version=version))
        assert short.short_ways - before == len(sizes) - 1

    run(play())


def test_a_connection_that_dies_takes_its_waiting_fetch_along() -> None:
    async def play() -> None:
        short, _, _ = await twins()
        services = short.node.services
        asked = one(0, version=12, max_wait_ms=1000)
        partition = services.partitions.get("plain", 0)
        assert partition is not None
        for _ in range(2):
            assert short.send(asked) == (b"", "")
            await asyncio.sleep(2)
            assert short.receive()[0]
            short.send(asked)
            short.send(asked)  # behind the one before
            assert len(partition._waiters) == 1 and services.ledger.parked_bytes.used > 0
            short.reconnect()
            assert (len(partition._waiters), services.ledger.parked_bytes.used, len(services.deadlines)) == (0, 0, 0)
        assert short.short_ways == 4

    run(play())


@pytest.mark.parametrize("count", [1, 2])
def test_a_log_start_that_moves_is_told_to_who_has_read_all(count: int) -> None:
    async def play() -> None:
        short, _, topic_ids = await twins()
        peer = short.peer
        write([peer], "plain", 10)
        wanted = [
            FetchRequest.FetchPartition(partition=index, fetch_offset=1 - index, partition_max_bytes=1 << 20)
            for index in range(count)
        ]
        topics = [FetchRequest.FetchTopic(topic_id=topic_ids["plain"], partitions=wanted)]
        session_id = (await peer.call(FetchRequest(session_epoch=0, topics=topics), 17, FetchResponse)).session_id

        async def ask(epoch: int) -> list[int]:
            asked = FetchRequest(session_id=session_id, session_epoch=epoch)
            answer = await peer.call(asked, 17, FetchResponse)
            return [data.log_start_offset for topic in answer.responses for data in topic.partitions]

        assert await ask(1) == await ask(2) == []
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=1)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name="plain", partitions=[partition])
        await peer.call(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2, DeleteRecordsResponse)
        assert await ask(3) == [1]
        assert await ask(4) == []

    run(play())
