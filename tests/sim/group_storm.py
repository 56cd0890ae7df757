"""A storm over one group: members join, leave, die, freeze and come back at random, on either protocol, through the
wire of a whole node on virtual time. A ledger is told who owns what; a partition with two owners ends the run.

    python -m tests.sim.group_storm --protocol consumer --seconds 60 --seeds 10
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final
from uuid import UUID

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError
from tidelog.client.group_offsets import ask_coordinator
from tidelog.client.membership import Member, MembershipOptions
from tidelog.client.metadata import TopicPartition
from tidelog.client.topics import NewTopic, create_topics
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.sim.loop import run
from tidelog.sim.net import NetOptions
from tidelog.testing.simulation import SimulatedWorld

TOPIC: Final = "storm"
GROUP: Final = "g"
SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 500
CONFIG: Final = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
    "log.flush.offset.checkpoint.interval.ms": "60000",
}
ROUGH: Final = NetOptions(cut_connection=0.002, delay=0.02, delay_ms_max=300)


@dataclass
class Ledger:
    """Who owns each partition, by what the members were told. A frozen member owns until its session has ended."""

    world: SimulatedWorld
    owners: dict[int, str] = field(default_factory=dict)
    until_s: dict[int, float] = field(default_factory=dict)
    handed_out: int = 0

    def acquire(self, member: str, partitions: Iterable[int]) -> None:
        now_s = self.world.clock.monotonic_s()
        for partition in partitions:
            owner = self.owners.get(partition)
            if owner is not None and owner != member and now_s < self.until_s.get(partition, float("inf")):
                raise AssertionError(f"at {now_s:.3f} s partition {partition} of {owner} was given to {member} too")
            self.owners[partition] = member
            self.until_s.pop(partition, None)
            self.handed_out += 1

    def release(self, member: str, partitions: Iterable[int] | None = None) -> None:
        for partition in [one for one, owner in self.owners.items() if owner == member]:
            if partitions is None or partition in set(partitions):
                del self.owners[partition]
                self.until_s.pop(partition, None)

    def freeze(self, member: str, until_s: float) -> None:
        for partition, owner in self.owners.items():
            if owner == member:
                self.until_s[partition] = until_s

    def thaw(self, member: str) -> None:
        """Its session may have ended meanwhile, and others may own what it had."""
        for partition, owner in self.owners.items():
            if owner == member:
                self.until_s.pop(partition, None)


class ConsumerMember:
    """A member of the new protocol that does as it is told, at once."""

    def __init__(self, name: str, cluster: Cluster, ledger: Ledger, random: Random, instance_id: str | None) -> None:
        self.name = name
        self._cluster = cluster
        self._ledger = ledger
        self._instance_id = instance_id
        self.member_id = str(UUID(int=random.getrandbits(128), version=4))
        self.epoch = 0
        self.owned: set[int] = set()
        self._topic_id = bytes(16)
        self._says_owned = False
        self._says_all = True
        """When it joins, and when it does not know what the coordinator has heard of it."""
        self.heard_s = 0.0
        """When the last heartbeat left that was answered: the session lasts at least from there."""
        self.frozen: asyncio.Event = asyncio.Event()
        self.frozen.set()

    async def run(self) -> None:
        interval_s = 0.0
        while True:
            await asyncio.sleep(interval_s)
            await self.frozen.wait()
            sent_s = self._cluster.clock.monotonic_s()
            if self.epoch and sent_s - self.heard_s > SESSION_MS / 1000:
                self._lose()
            try:
                answer = await self._beat(self._request())
            except ClientError:
                self._says_all = True
                interval_s = 0.1
                continue
            await self.frozen.wait()
            interval_s = self._obey(answer, sent_s)

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        owned = ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=self._topic_id, partitions=sorted(self.owned))
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, instance_id=self._instance_id
        )
        if self._says_owned or self._says_all:
            request.topic_partitions = [owned] if self.owned else []
        if self._says_all:
            request.rebalance_timeout_ms = 4_000
            request.subscribed_topic_names = [TOPIC]
        return request

    async def _beat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        answer, _ = await ask_coordinator(
            self._cluster,
            GROUP,
            request,
            ConsumerGroupHeartbeatRequest,
            ConsumerGroupHeartbeatResponse,
            timeout_s=2.0,
        )
        return answer

    def _obey(self, answer: ConsumerGroupHeartbeatResponse, sent_s: float) -> float:
        """The seconds until the next heartbeat."""
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._lose()
            return 0.0
        if answer.error_code:
            self._says_all = True
            return 0.2
        self.heard_s = sent_s
        self.epoch = answer.member_epoch
        self._says_owned = self._says_all = False
        if answer.assignment is None:
            return answer.heartbeat_interval_ms / 1000
        given: set[int] = set()
        for topic in answer.assignment.topic_partitions:
            self._topic_id = topic.topic_id
            given.update(topic.partitions)
        gone, new = self.owned - given, given - self.owned
        self._ledger.release(self.name, gone)
        self._ledger.acquire(self.name, new)
        self.owned = given
        self._says_owned = bool(gone or new)
        return 0.0 if self._says_owned else answer.heartbeat_interval_ms / 1000

    def _lose(self) -> None:
        self._ledger.release(self.name)
        self.owned = set()
        self.epoch = 0
        self._says_all = True

    async def leave(self) -> None:
        self._ledger.release(self.name)
        self.owned = set()
        epoch = -1 if self._instance_id is None else -2
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=epoch, instance_id=self._instance_id
        )
        try:
            await self._beat(request)
        except ClientError:
            return  # the session will time out instead


class ClassicMember:
    """Our own client's member (eager, range), told to the ledger."""

    def __init__(self, name: str, cluster: Cluster, ledger: Ledger, random: Random, instance_id: str | None) -> None:
        self.name = name
        self._ledger = ledger
        options = MembershipOptions(
            group_id=GROUP,
            topics=(TOPIC,),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=4_000,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        self._member = Member(cluster, options, self)
        self.heard_s = 0.0
        self.frozen: asyncio.Event = asyncio.Event()
        self.frozen.set()

    async def run(self) -> None:
        while True:
            try:
                await self._member.run()
            except ClientError:
                self._ledger.release(self.name)
                await asyncio.sleep(0.1)

    async def leave(self) -> None:
        self._ledger.release(self.name)
        await self._member.leave()

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._ledger.acquire(self.name, (one.partition for one in partitions))

    async def revoked(self) -> None:
        self._ledger.release(self.name)

    async def lost(self) -> None:
        self._ledger.release(self.name)


class Storm:
    def __init__(self, world: SimulatedWorld, protocol: str, members: int, partitions: int) -> None:
        self.world = world
        self.ledger = Ledger(world)
        self.protocol = protocol
        self.members = members
        self.partitions = partitions
        self.random = Random(world.random.getrandbits(64))
        self._fair = asyncio.Event()
        """No more members die: the storm is over."""
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def blow(self, seconds: float) -> None:
        async with self.world.client("setup") as cluster:
            topic = NewTopic(name=TOPIC, partitions=self.partitions)
            await cluster.retrying(lambda: create_topics(cluster, [topic]))
        lives = [asyncio.ensure_future(self._lives(number)) for number in range(self.members)]
        for life in lives:
            life.add_done_callback(self._on_end)
        try:
            await asyncio.wait([self._failed], timeout=seconds)
            self._fair.set()
            calm = asyncio.ensure_future(self._until_calm())
            await asyncio.wait([self._failed, calm], timeout=60.0, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
            assert calm.done(), f"owned after a minute of calm: {sorted(self.ledger.owners.items())}"
        finally:
            for life in lives:
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)

    def _on_end(self, life: asyncio.Future[None]) -> None:
        if not life.cancelled() and (error := life.exception()) is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _until_calm(self) -> None:
        """Every partition has an owner and nothing moves for two sessions."""
        while True:
            before = self.ledger.handed_out
            await asyncio.sleep(2 * SESSION_MS / 1000)
            if len(self.ledger.owners) == self.partitions and self.ledger.handed_out == before:
                return

    async def _lives(self, number: int) -> None:
        """One place in the group: a member after the other, until the storm is over; the last one stays."""
        random = Random(self.random.getrandbits(64))
        make = ConsumerMember if self.protocol == "consumer" else ClassicMember
        instance_id = f"static-{number}" if self.protocol == "consumer" and number % 10 == 0 else None
        life = 0
        await asyncio.sleep(random.uniform(0, 3))
        while True:
            life += 1
            name = f"m{number}-{life}"
            cluster = self.world.client(name)
            member = make(name, cluster, self.ledger, random, instance_id)
            running = asyncio.ensure_future(member.run())
            storm = asyncio.ensure_future(self._fair.wait())
            try:
                await asyncio.wait([running, storm], timeout=random.expovariate(1 / 15), return_when="FIRST_COMPLETED")
                if running.done():
                    running.result()
                if self._fair.is_set():
                    await running
                await self._end(member, running, random)
            finally:
                storm.cancel()
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                await cluster.close()
            await asyncio.sleep(random.expovariate(1 / 2))

    async def _end(self, member: ConsumerMember | ClassicMember, running: asyncio.Future[None], random: Random) -> None:
        way = random.random()
        if way < 0.3 and isinstance(member, ConsumerMember):
            # It neither speaks nor listens, and believes what it was told until its session must have ended.
            member.frozen.clear()
            self.ledger.freeze(member.name, member.heard_s + SESSION_MS / 1000)
            await asyncio.sleep(random.uniform(0, 2 * SESSION_MS / 1000))
            self.ledger.thaw(member.name)
            member.owned &= {one for one, owner in self.ledger.owners.items() if owner == member.name}
            member.frozen.set()
            await asyncio.wait([running], timeout=random.expovariate(1 / 5))
            if running.done():
                running.result()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        if way > 0.6:
            await member.leave()
        else:
            self.ledger.release(member.name)


async def storm(seed: int, protocol: str, *, members: int, partitions: int, seconds: float) -> Ledger:
    world = SimulatedWorld(seed, config=CONFIG, net=ROUGH)
    assert await world.start()
    blown = Storm(world, protocol, members, partitions)
    await blown.blow(seconds)
    return blown.ledger


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", choices=("classic", "consumer"), nargs="+", default=["classic", "consumer"])
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0, help="of virtual time")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    for protocol in args.protocol:
        for seed in range(args.first, args.first + args.seeds):
            made = storm(seed, protocol, members=args.members, partitions=args.partitions, seconds=args.seconds)
            ledger = run(made, seed)
            print(f"{protocol}, seed {seed}: {ledger.handed_out} partitions were handed out, never to two at once")


if __name__ == "__main__":
    main()
