"""A classic group by itself: members, votes and the durable form."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.coordinator.fakes import World
from tests.unit.coordinator.group.test_administration import make_stable
from tidelog.coordinator.group.classic import ClassicGroup
from tidelog.coordinator.group.member import Member, Protocols
from tidelog.coordinator.group.state import BEFORE, GroupState
from tidelog.coordinator.outbox import Waiting
from tidelog.protocol.messages.join_group import JoinGroupResponse


def member(name: str, protocols: Protocols = (("range", b"m"),), *, instance: str | None = None) -> Member:
    return Member(
        member_id=name,
        instance_id=instance,
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=1_000,
        session_timeout_ms=500,
        protocols=protocols,
    )


def waiting() -> Waiting[JoinGroupResponse]:
    return Waiting(lambda response: None)


def test_a_group_has_all_joined_when_every_member_waits_and_no_id_is_out() -> None:
    group = ClassicGroup("g")
    group.add(member("a"), waiting())
    group.add(member("b"), None)
    assert not group.all_joined
    group.remove("b")
    assert group.all_joined
    group.pending_joins.add("c")
    assert not group.all_joined
    group.remove("c")
    group.add(member("d"), waiting())
    assert group.all_joined
    group.remove("a")
    assert group.all_joined and group.awaiting_join_count == 1


def test_a_removed_member_has_no_say_in_the_protocol_any_more() -> None:
    group = ClassicGroup("g")
    group.protocol_type = "consumer"
    group.add(member("a", (("range", b""),)), None)
    group.add(member("b", (("range", b""), ("sticky", b""))), None)
    group.state = GroupState.STABLE
    assert not group.supports("consumer", (("sticky", b""),))
    group.remove("a")
    assert group.supports("consumer", (("sticky", b""),))
    group.update(group.members["b"], (("roundrobin", b""),), 1, 1)
    assert not group.supports("consumer", (("sticky", b""),))
    assert group.select_protocol() == "roundrobin"


def test_with_equal_votes_the_older_member_decides() -> None:
    group = ClassicGroup("g")
    group.add(member("a", (("sticky", b""), ("range", b""))), None)
    group.add(member("b", (("range", b""), ("sticky", b""))), None)
    assert group.select_protocol() == "sticky"


def test_the_longest_rebalance_time_out_counts() -> None:
    group = ClassicGroup("g")
    assert group.rebalance_timeout_ms == 0
    group.add(member("a"), None)
    group.add(replace(member("b"), rebalance_timeout_ms=7_000), None)
    assert group.rebalance_timeout_ms == 7_000


@pytest.mark.parametrize("state", list(GroupState))
def test_only_the_drawn_ways_lead_from_state_to_state(state: GroupState) -> None:
    for target in GroupState:
        group = ClassicGroup("g")
        group.state = state
        if state in BEFORE[target]:
            group.transition(target, 5)
            assert (group.state, group.previous_state, group.state_ms) == (target, state, 5)
        else:
            with pytest.raises(AssertionError):
                group.transition(target, 5)


def test_a_record_whose_leader_is_no_member_still_makes_a_group() -> None:
    group = ClassicGroup("g")
    group.protocol_type, group.protocol = "consumer", "range"
    group.add(member("a"), None)
    value = group.to_record({"a": b"mine"})
    value.leader = "somebody"
    loaded = ClassicGroup.from_record("g", value)
    assert (loaded.leader_id, loaded.state) == ("a", GroupState.STABLE)
    assert loaded.members["a"].assignment == b"mine"


def test_the_oldest_records_take_the_session_for_the_rebalance_time_out() -> None:
    record = member("a").to_record("range", b"")
    record.rebalance_timeout = -1
    assert Member.from_record(record, "range").rebalance_timeout_ms == 500


def test_a_group_that_outgrew_a_lowered_limit_rebalances_when_it_is_loaded() -> None:
    world = World()
    make_stable(world, "g")
    world.config = replace(world.config, group_max_size=0)
    world.restart()
    assert world.machine.groups["g"].state is GroupState.PREPARING_REBALANCE
