"""Consumers that behave like real ones, mostly, on virtual time and over a log that stalls, refuses and loses its end.

One `Random` makes every choice, so a seed is a whole history. After every step:
- what is durable is what a replay of the log gives, and a stable group is what a restart would bring;
- who is told an assignment has the one that the leader of that very generation made for it (I12);
- nothing of a generation that is over is accepted any more (I12);
- an offset that was acknowledged or shown is never lost (I13).
In the end, with a working log and time enough, everybody has an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.unit.coordinator.fakes import FakeLog, World
from tidelog.coordinator.group.classic import ClassicGroup
from tidelog.coordinator.group.coordinator import Client
from tidelog.coordinator.group.state import GroupState
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.leave_group import LeaveGroupRequest
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

GROUP = "g"
SESSION_MS = 10_000
FORGET_ID = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


@dataclass
class Consumer:
    name: str
    instance: str | None
    version: int
    member_id: str = ""
    generation: int = -1
    is_synced: bool = False
    metadata: bytes = b"m"
    roster: list[str] = field(default_factory=list)
    """The members of the generation that this one leads; empty for the others."""
    waiting: Any = None

    def reset(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.generation, self.is_synced, self.waiting, self.roster = -1, False, None, []
        if error in FORGET_ID:
            self.member_id = ""


class Simulation:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(seed=seed, group_initial_rebalance_delay_ms=self.random.choice([0, 3_000]))
        versions = [self.random.choice([0, 3, 4, 5, 7, 9]) for _ in range(4)]
        instances = [None, None, "i", self.random.choice(["i", "j"])]
        self.consumers = [
            Consumer(name, instance if version >= 5 else None, version)
            for name, instance, version in zip("abcd", instances, versions, strict=True)
        ]
        self.generation = 0
        """The newest one that anybody was told of."""
        self.owners: dict[str, str] = {}
        """Member id -> whose assignment it has: that of another id for a static member under a new one."""
        self.unanswered = 0
        self.written = 0
        self.safe = -1
        """The newest offset that was acknowledged or shown."""
        self.seen: Counter[str] = Counter()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()
            self.check()
        self.world.log.failure = None
        self.world.log.commit()
        self.world.advance(700_000)
        assert self.unanswered == 0, "somebody waits for ever"

    def _step(self) -> None:
        consumer = self.random.choice(self.consumers)
        actions: list[tuple[int, Callable[[], None]]] = [
            (560, lambda: self.act(consumer)),
            (120, self.world.settle),
            (130, lambda: self.world.advance(self.random.choice([1, 10, 100, 3_000]))),
            (12, lambda: self.world.advance(self.random.choice([SESSION_MS, 20_000]))),
            (50, self.fetch),
            (40, lambda: self.stale(consumer)),
            (15, lambda: self.leave(consumer)),
            (15, lambda: self.change(consumer)),
            (10, lambda: self.disconnect(consumer)),
            (15, self.stall),
            (30, self.world.log.commit),
            (5, self.refuse),
            (20, self.mend),
            (8, self.crash),
        ]
        weights = [weight for weight, _ in actions]
        self.random.choices([action for _, action in actions], weights)[0]()

    # consumers

    def act(self, consumer: Consumer) -> None:
        if consumer.waiting is not None:
            return
        if consumer.generation < 0:
            self.join(consumer)
        elif not consumer.is_synced:
            self.sync(consumer, consumer.generation)
        elif self.random.random() < 0.5:
            self.heartbeat(consumer, consumer.generation)
        else:
            self.commit(consumer, consumer.generation)

    def stale(self, consumer: Consumer) -> None:
        if consumer.generation > 0 and consumer.waiting is None:
            self.random.choice([self.sync, self.heartbeat, self.commit])(consumer, consumer.generation - 1)

    def change(self, consumer: Consumer) -> None:
        """A new subscription."""
        consumer.metadata = self.random.choice([b"m", b"n"])
        if consumer.waiting is None:
            consumer.generation = -1

    def disconnect(self, consumer: Consumer) -> None:
        if consumer.waiting is not None:
            consumer.waiting.cancel()
            self.unanswered -= 1
            consumer.reset()
            if consumer.instance is not None and self.random.random() < 0.5:
                consumer.member_id = ""

    def join(self, consumer: Consumer) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            member_id=consumer.member_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=20_000,
            group_instance_id=consumer.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=consumer.metadata)],
        )
        done = self._expect(consumer)

        def answered(response: JoinGroupResponse) -> None:
            if not done():
                return
            error = ErrorCode(response.error_code)
            if error is ErrorCode.MEMBER_ID_REQUIRED:
                consumer.member_id = response.member_id
            if error is not ErrorCode.NONE:
                consumer.reset(error)
                return
            self.seen["joined"] += 1
            assert response.generation_id >= self.generation, "a generation that is over was handed out"
            self.generation = response.generation_id
            consumer.member_id, consumer.generation = response.member_id, response.generation_id
            consumer.is_synced = False
            consumer.roster = [member.member_id for member in response.members] if not response.skip_assignment else []

        client = Client(consumer.name, "/127.0.0.1")
        consumer.waiting = True
        waiting = self.world.groups.join(request, consumer.version, client, answered)
        if consumer.waiting is True:
            consumer.waiting = waiting

    def sync(self, consumer: Consumer, generation: int) -> None:
        member_id = consumer.member_id
        request = SyncGroupRequest(
            group_id=GROUP,
            member_id=member_id,
            generation_id=generation,
            group_instance_id=consumer.instance,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=f"{generation}:{name}".encode())
                for name in consumer.roster
            ],
        )
        done = self._expect(consumer)

        def answered(response: SyncGroupResponse) -> None:
            if not done():
                return
            error = ErrorCode(response.error_code)
            if error is not ErrorCode.NONE:
                if generation == consumer.generation:
                    consumer.reset(error)
                return
            self.seen["synced"] += 1
            consumer.is_synced = True
            assert generation == self.generation, "a sync of an old generation was accepted"
            made_in, _, made_for = response.assignment.decode().partition(":")
            assert made_in == str(generation), "an assignment of another generation"
            assert made_for.rsplit("-", 5)[0] == member_id.rsplit("-", 5)[0], "the assignment of another member"
            owner = self.owners.setdefault(response.assignment.decode(), member_id)
            if owner != member_id:
                assert consumer.instance is not None, "two members have one assignment"

        consumer.waiting = True
        waiting = self.world.groups.sync(request, 3, answered)
        if consumer.waiting is True:
            consumer.waiting = waiting

    def heartbeat(self, consumer: Consumer, generation: int) -> None:
        request = HeartbeatRequest(
            group_id=GROUP,
            member_id=consumer.member_id,
            generation_id=generation,
            group_instance_id=consumer.instance,
        )
        error = ErrorCode(self.world.groups.heartbeat(request).error_code)
        if error is ErrorCode.NONE:
            assert generation == self.generation, "a heartbeat of an old generation was accepted"
        elif generation == consumer.generation:
            consumer.reset(error)

    def leave(self, consumer: Consumer) -> None:
        identity = LeaveGroupRequest.MemberIdentity(member_id=consumer.member_id, group_instance_id=consumer.instance)
        if consumer.waiting is None and consumer.member_id:
            done = self._expect(consumer)
            self.world.groups.leave(LeaveGroupRequest(group_id=GROUP, members=[identity]), 5, lambda _: _ignore(done()))
            consumer.reset(ErrorCode.UNKNOWN_MEMBER_ID)

    def _expect(self, consumer: Consumer) -> Callable[[], bool]:
        """Count a request; what is returned counts its answer and says whether anybody is there to read it."""
        epoch = self.world.epoch
        self.unanswered += 1

        def done() -> bool:
            if epoch != self.world.epoch:
                return False
            self.unanswered -= 1
            consumer.waiting = None
            return True

        return done

    # offsets

    def commit(self, consumer: Consumer, generation: int) -> None:
        self.written += 1
        value, newest = self.written, self.generation
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=value)
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id=consumer.member_id,
            generation_id_or_member_epoch=generation,
            group_instance_id=consumer.instance,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        done = self._expect(consumer)

        def answered(response: OffsetCommitResponse) -> None:
            waiting = consumer.waiting
            if not done():
                return
            consumer.waiting = waiting
            error = ErrorCode(response.topics[0].partitions[0].error_code)
            if error is ErrorCode.NONE:
                self.seen["committed"] += 1
                self.safe = max(self.safe, value)
                assert generation == newest, "a commit of an old generation was accepted"
            elif generation == consumer.generation and error in FORGET_ID and waiting is None:
                consumer.reset(error)

        self.world.groups.commit_offsets(request, 8, answered)

    def fetch(self) -> None:
        safe = self.safe
        done = self._expect(Consumer("z", None, 0))

        def answered(response: OffsetFetchResponse) -> None:
            if done() and response.error_code == ErrorCode.NONE:
                (entry,) = response.topics[0].partitions
                self.seen["fetched"] += 1
                assert entry.committed_offset >= safe, "an offset that was acknowledged or shown is gone"
                self.safe = max(self.safe, entry.committed_offset)

        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        self.world.groups.fetch_offsets(OffsetFetchRequest(group_id=GROUP, topics=[topic]), 7, answered)

    # the world

    def stall(self) -> None:
        self.world.log.holds = True

    def refuse(self) -> None:
        self.world.log.failure = self.random.choice([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.RECORD_LIST_TOO_LARGE])

    def mend(self) -> None:
        self.world.log.failure = None

    def crash(self) -> None:
        """Connections die, what was not committed is lost, and a static client may have forgotten its id."""
        log, kept = self.world.log, FakeLog()
        for batch in log.batches:
            if kept.end < log.high_watermark:
                kept.add(batch)
        kept.high_watermark = kept.end
        self.world.logs[0] = kept
        self.unanswered = 0
        self.world.restart()
        group = self.world.machine.groups.get(GROUP)
        self.generation = 0 if group is None else group.generation
        self.owners.clear()
        for consumer in self.consumers:
            if consumer.waiting is not None or consumer.generation != self.generation:
                consumer.reset()
        self.seen["crashed"] += 1

    # what must hold

    def check(self) -> None:
        machine, replayed = self.world.machine, self.world.replayed()
        assert machine.persisted == replayed.persisted, "the groups are not what their log says"
        assert machine.offsets._groups == replayed.offsets._groups, "the offsets are not what their log says"
        group = machine.groups.get(GROUP)
        if group is not None:
            self._check_group(group)

    def _check_group(self, group: ClassicGroup) -> None:
        everybody = all(member.awaiting_join for member in group.members.values())
        assert group.all_joined == (everybody and not group.pending_joins)
        assert group.leader_id in group.members or (group.leader_id is None and not group.members)
        self.seen[group.state.value] += 1
        if group.state is GroupState.STABLE:
            loaded = ClassicGroup.from_record(GROUP, self.world.machine.persisted[GROUP])
            assert essence(loaded) == essence(group), "a restart would bring another group"


def _ignore(_: bool) -> None:
    return None


def essence(group: ClassicGroup) -> dict[str, Any]:
    """What a restart must keep of a stable group."""
    return {
        "generation": group.generation,
        "protocol": (group.protocol_type, group.protocol),
        "leader": group.leader_id,
        "topics": group.topics,
        "static": group.static_ids,
        "members": {
            member.member_id: (
                member.instance_id,
                member.client_id,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(group.protocol),
                member.assignment,
            )
            for member in group.members.values()
        },
    }
