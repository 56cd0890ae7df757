"""A thousand members of a group in one process: raw requests on a connection each, nothing decoded while it counts."""

from __future__ import annotations

import asyncio
import time
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from tidelog.client.consumer_protocol import encode_assignment, encode_subscription
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.codec import decode
from tidelog.protocol.frame import encode_request, read_response_head
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

ResponseT = TypeVar("ResponseT", bound=Struct)
JOIN, SYNC, HEARTBEAT = 9, 5, 1
MEMBER_ID_REQUIRED = 79
NOT_READY = (14, 15, 16)
"""A coordinator that loads, or that has not heard yet that it is one."""
SESSION_MS = 45_000


class Wire(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.answer: asyncio.Future[bytes] | None = None
        self.answered_s = 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) >= 4 and len(self.received) >= 4 + int.from_bytes(self.received[:4], "big"):
            self.answered_s = time.perf_counter()
            frame = bytes(self.received[4:])
            self.received.clear()
            if self.answer is not None and not self.answer.done():
                self.answer.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(ConnectionError("the broker closed the connection"))

    def send(self, frame: bytes) -> asyncio.Future[bytes]:
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(frame)
        return self.answer

    async def call(self, request: Struct, version: int, shape: type[ResponseT]) -> ResponseT:
        return decoded(await self.send(encode_request(request, version, 1, "bench")), version, shape)


def decoded(frame: bytes, version: int, shape: type[ResponseT]) -> ResponseT:
    api: Any = shape
    return decode(shape, version, frame[read_response_head(api.API_KEY, version, frame)[1] :])


async def connect(address: str, count: int) -> list[Wire]:
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    wires: list[Wire] = []
    for start in range(0, count, 50):
        opened = [loop.create_connection(Wire, host, int(port)) for _ in range(start, min(start + 50, count))]
        wires += [wire for _, wire in await asyncio.gather(*opened)]
    return wires


async def await_coordinator(wire: Wire, group: str) -> None:
    """The first question makes the topic of the offsets."""
    while True:
        answer = await wire.call(FindCoordinatorRequest(coordinator_keys=[group]), 4, FindCoordinatorResponse)
        if not answer.coordinators[0].error_code:
            return
        await asyncio.sleep(0.1)


class Rebalance(NamedTuple):
    join_s: float
    """From the last JoinGroup sent to the last answer."""
    sync_s: float
    """From the leader's SyncGroup sent to the last answer."""

    @property
    def total_s(self) -> float:
        return self.join_s + self.sync_s


class ClassicGroup:
    def __init__(self, wires: list[Wire], group: str, topic: str, partitions: int) -> None:
        self.wires = wires
        self.group = group
        self.topic = topic
        self.partitions = partitions
        self.ids = [""] * len(wires)

    def _join(self, number: int) -> bytes:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=encode_subscription((self.topic,)))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            member_id=self.ids[number],
            protocol_type="consumer",
            protocols=[protocol],
        )
        return encode_request(request, JOIN, 1, "bench")

    def _sync(self, joined: JoinGroupResponse) -> bytes:
        assignments: list[SyncGroupRequest.SyncGroupRequestAssignment] = []
        if joined.leader == joined.member_id:
            count = len(joined.members)
            for place, member in enumerate(joined.members):
                own = [TopicPartition(self.topic, index) for index in range(place, self.partitions, count)]
                made = SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=member.member_id, assignment=encode_assignment(own)
                )
                assignments.append(made)
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        return encode_request(request, SYNC, 1, "bench")

    async def form(self) -> None:
        """Needs a broker that waits a little before its first rebalance (group.initial.rebalance.delay.ms)."""
        await await_coordinator(self.wires[0], self.group)
        for number, wire in enumerate(self.wires):
            while True:
                answer = decoded(await wire.send(self._join(number)), JOIN, JoinGroupResponse)
                if answer.error_code not in NOT_READY:
                    break
                await asyncio.sleep(0.1)
            assert answer.error_code == MEMBER_ID_REQUIRED, answer.error_code
            self.ids[number] = answer.member_id
        frames = [self._join(number) for number in range(len(self.wires))]
        sent = [wire.send(frame) for wire, frame in zip(self.wires, frames, strict=True)]
        await self._finish(sent)

    async def rebalance(self) -> Rebalance:
        """All join again, the last one when all others wait."""
        frames = [self._join(number) for number in range(len(self.wires))]
        # The leader's join begins the rebalance; the others would be told by their next heartbeat.
        sent = [self.wires[self.leader].send(frames[self.leader])]
        await asyncio.sleep(0.2)
        others = [number for number in range(len(self.wires)) if number != self.leader]
        sent += [self.wires[number].send(frames[number]) for number in others[:-1]]
        await asyncio.sleep(1.0)
        assert not any(answer.done() for answer in sent), "the rebalance ended before the last member was there"
        started_s = time.perf_counter()
        sent.append(self.wires[others[-1]].send(frames[others[-1]]))
        return await self._finish(sent, started_s)

    async def _finish(self, sent: list[asyncio.Future[bytes]], started_s: float = 0.0) -> Rebalance:
        await asyncio.gather(*sent)
        join_s = max(wire.answered_s for wire in self.wires) - started_s
        joined = [decoded(wire.answer.result(), JOIN, JoinGroupResponse) for wire in self.wires if wire.answer]
        for answer in joined:
            assert answer.error_code == 0, answer.error_code
        self.leader = next(number for number, one in enumerate(joined) if one.leader == one.member_id)
        assert len(joined[self.leader].members) == len(self.wires)
        frames = [self._sync(one) for one in joined]
        others = [number for number in range(len(self.wires)) if number != self.leader]
        waiting = [self.wires[number].send(frames[number]) for number in others]
        await asyncio.sleep(0.5)
        started_s = time.perf_counter()
        waiting.append(self.wires[self.leader].send(frames[self.leader]))
        await asyncio.gather(*waiting)
        sync_s = max(wire.answered_s for wire in self.wires) - started_s
        for wire in self.wires:
            assert wire.answer is not None
            assert decoded(wire.answer.result(), SYNC, SyncGroupResponse).error_code == 0
        return Rebalance(join_s, sync_s)


class ConsumerMember:
    """A member of the new protocol that heartbeats as it is told."""

    def __init__(self, wire: Wire, group: str, topic: str, member_id: str) -> None:
        self.wire, self.group, self.topic, self.member_id = wire, group, topic, member_id
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}
        self.says_owned = False
        self.slowest_s = 0.0
        self.changed = asyncio.Event()

    @property
    def count(self) -> int:
        return sum(map(len, self.owned.values()))

    async def run(self, delay_s: float = 0.0) -> None:
        await asyncio.sleep(delay_s)
        while True:
            sent_s = time.perf_counter()
            answer = await self.wire.call(self._request(), HEARTBEAT, ConsumerGroupHeartbeatResponse)
            self.slowest_s = max(self.slowest_s, time.perf_counter() - sent_s)
            if answer.error_code in NOT_READY:
                await asyncio.sleep(0.1)
                continue
            assert answer.error_code == 0, (answer.error_code, answer.error_message)
            self.epoch = answer.member_epoch
            self.says_owned = False
            if answer.assignment is not None:
                given = {one.topic_id: sorted(one.partitions) for one in answer.assignment.topic_partitions}
                if given != self.owned:
                    self.owned = given
                    self.says_owned = True
                    self.changed.set()
                    continue
            await asyncio.sleep(answer.heartbeat_interval_ms / 1000)

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=self.epoch)
        if self.epoch == 0:
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names = [self.topic]
            request.topic_partitions = []
        elif self.says_owned:
            request.topic_partitions = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=own)
                for topic_id, own in self.owned.items()
            ]
        return request
