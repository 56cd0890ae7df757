"""Members that come, go, die, lose answers and are slow, over topics that change and a coordinator that is loaded anew
at any moment. After every step: no partition has two owners, and no epoch goes back. In the end all converges.

A consumer owns what it was told to have, from the moment it was told; what it was told to give up it owns until it has
got round to that. One that the coordinator has put out may go on believing what it likes: its commits are refused.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.coordinator.fakes import World
from tests.unit.coordinator.group.consumer.classics import Classic
from tests.unit.coordinator.group.consumer.members import GROUP, Consumer, Parts, group_of, send
from tests.unit.coordinator.group.consumer.test_groups import commit_as
from tidelog.coordinator.chores import finish
from tidelog.coordinator.group.consumer import targets
from tidelog.coordinator.group.consumer.group import ConsumerGroup, held_by
from tidelog.protocol.errors import ErrorCode

NAMES = "abcdef"
STATIC = {"d": "i", "e": "j"}
CLASSIC = "f"
FATAL = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)


class Slow(Consumer):
    """Gives up nothing before `revoke`."""

    kept: Parts
    must_say_all = False

    def beat(self, *, tells: bool = True) -> Consumer:
        had = set(self.owned)
        if self.must_say_all:
            self.take(self.full())
        else:
            super().beat(tells=tells)
        self.must_say_all = self.error is not ErrorCode.NONE
        if self.error in FATAL:
            self.owned, self.kept, self.epoch = set(), set(), 0
        elif self.error is ErrorCode.NONE:
            self.kept = set(self.owned)
            self.owned |= had
        return self

    def revoke(self) -> None:
        self.owned &= self.kept

    def restart(self) -> Consumer:
        self.kept = set()
        super().join()
        self.kept = set(self.owned)
        return self


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(group_consumer_migration_policy="upgrade")  # type: ignore[arg-type]
        self.members: dict[str, Slow] = {}
        self.classic: Classic | None = None
        self.number = 0
        self.group_epoch = 0
        self.epochs: dict[str, int] = {}

    # members

    @initialize()
    def somebody(self) -> None:
        self.join("a", False)

    def _has_members(self) -> bool:
        group = self.world.machine.consumers.get(GROUP)
        return group is not None and bool(group.members)

    @rule(name=st.sampled_from(NAMES[:5]), regex=st.booleans())
    def join(self, name: str, regex: bool) -> None:
        if name in self.members:
            return
        self.number += 1
        topics, pattern = (None, "[tv].*") if regex else (["t", "u"] if self.number % 3 else ["t"], None)
        member = Slow(self.world, f"{name}{self.number}", topics, pattern, STATIC.get(name))
        if member.restart().error is ErrorCode.NONE:
            self.members[name] = member

    @rule(name=st.sampled_from(NAMES), tells=st.booleans())
    def beat(self, name: str, tells: bool) -> None:
        if name == CLASSIC:
            self._follow_classic()
        elif (member := self.members.get(name)) is not None:
            if member.epoch == 0:
                member.restart()
            else:
                member.beat(tells=tells)

    def _follow_classic(self) -> None:
        if self.classic is None:
            if self._has_members():
                self.classic = Classic(self.world, CLASSIC).join()
                self.classic.sync()
        elif self.classic.follow().error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.classic = None

    @rule(name=st.sampled_from(NAMES))
    def revoke(self, name: str) -> None:
        if name in self.members:
            self.members[name].revoke()

    @rule(name=st.sampled_from(NAMES))
    def lose_the_answer(self, name: str) -> None:
        """The heartbeat arrives, its answer does not; the next one says everything."""
        member = self.members.get(name)
        if member is not None and member.epoch > 0:
            send(self.world, member_id=member.member_id, member_epoch=member.epoch, topic_partitions=member.parts())
            member.must_say_all = True

    @rule(name=st.sampled_from(NAMES), for_a_while=st.booleans())
    def leave(self, name: str, for_a_while: bool) -> None:
        if name == CLASSIC and self.classic is not None:
            self.classic.leave()
            self.classic = None
        elif (member := self.members.get(name)) is not None:
            member.leave(-2 if for_a_while and member.instance_id else -1)
            if member.error is ErrorCode.NONE:
                del self.members[name]
            else:
                member.restart()

    @rule(name=st.sampled_from(NAMES))
    def die(self, name: str) -> None:
        self.members.pop(name, None)

    @rule(name=st.sampled_from(NAMES[:5]), back=st.integers(0, 2), partition=st.integers(0, 3))
    def commit(self, name: str, back: int, partition: int) -> None:
        """Nothing of an epoch in which the member did not have the partition is accepted (I12)."""
        member = self.members.get(name)
        if member is None or not self._is_in(member.member_id):
            return
        current = group_of(self.world).current(member.member_id)
        epoch = current.epoch - back
        topic_id = self.world.topics.topic_id("t") or b""
        since = {**current.revoking.get(topic_id, {}), **current.assigned.get(topic_id, {})}.get(partition)
        code = commit_as(self.world, member.member_id, epoch, partition)
        if self.world.log.failure is None and epoch > 0:
            allowed = back == 0 or (since is not None and epoch >= since)
            assert code is (ErrorCode.NONE if allowed else ErrorCode.STALE_MEMBER_EPOCH)

    def _is_in(self, member_id: str) -> bool:
        group = self.world.machine.consumers.get(GROUP)
        return group is not None and member_id in group.members

    # the world

    @rule(ms=st.sampled_from([10, 700, 5_000, 20_000, 50_000]))
    def wait(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(count=st.integers(1, 5))
    def more_partitions(self, count: int) -> None:
        self.world.topics.partitions["t"] = max(count, self.world.topics.partitions["t"])
        self.world.groups.topics_changed({"t"}, came_or_went=False)

    @rule()
    def another_topic(self) -> None:
        topics = self.world.topics.partitions
        if "v" in topics:
            del topics["v"]
        else:
            topics["v"] = 2
        self.world.groups.topics_changed({"v"}, came_or_went=True)

    @rule()
    def load_anew(self) -> None:
        self.world.restart()

    @rule()
    def refuse_or_mend(self) -> None:
        self.world.log.failure = ErrorCode.NOT_LEADER_OR_FOLLOWER if self.world.log.failure is None else None

    # what must hold

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owners: dict[tuple[str, int], str] = {}
        claims = [(member.member_id, member.owned) for member in self.members.values()]
        if self.classic is not None:
            claims.append((self.classic.member_id, self.classic.owned))
        for member_id, owned in claims:
            if self._is_in(member_id):
                for part in owned:
                    assert owners.setdefault(part, member_id) == member_id, (part, owners[part], member_id)

    @invariant()
    def the_group_knows_of_no_two_owners_either(self) -> None:
        group = self.world.machine.consumers.get(GROUP)
        if group is not None:
            held = [part for current in group.currents.values() for part in held_by(current)]
            assert len(held) == len(set(held))
            assert all(group.owner(*part) is not None for part in held)

    @invariant()
    def epochs_never_go_back(self) -> None:
        group = self.world.machine.consumers.get(GROUP)
        if group is None:
            return
        assert group.epoch >= max(self.group_epoch, group.target_epoch)
        self.group_epoch = group.epoch
        for member_id, current in group.currents.items():
            if current.epoch > 0:
                assert current.epoch >= self.epochs.get(member_id, 0)
                self.epochs[member_id] = current.epoch

    @invariant()
    def a_replica_knows_the_same(self) -> None:
        group, twin = self.world.machine.consumers.get(GROUP), self.world.replayed().consumers.get(GROUP)
        assert (group is None) == (twin is None)
        if group is not None and twin is not None:
            assert _durable(group) == _durable(twin)

    def teardown(self) -> None:
        self.world.log.failure = None
        for _ in range(30):
            for member in self.members.values():
                member.revoke()
                member.beat() if member.epoch > 0 else member.restart()
            if self.classic is not None:
                self._follow_classic()
            self.world.advance(3_000)
        if self.members or self.classic is not None:
            self._check_converged()

    def _check_converged(self) -> None:
        group = group_of(self.world)
        assert (group.state, group.target_epoch) == ("Stable", group.epoch)
        assert finish(targets.compute(group, self.world.topics, "uniform")) == dict(group.targets)
        owned = [part for member in self.members.values() for part in sorted(member.owned)]
        if self.classic is not None:
            owned += sorted(self.classic.owned)
        counts = self.world.topics.partitions
        assert sorted(owned) == sorted((name, index) for name in group.topics() for index in range(counts.get(name, 0)))


def _durable(group: ConsumerGroup) -> list[object]:
    names = ("epoch", "metadata_hash", "members", "currents", "targets", "target_epoch", "regexes", "static_ids")
    return [getattr(group, name) for name in names]


Groups.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestGroups = Groups.TestCase
