"""Groups of Java's consumer on the protocol of KIP-848."""

from __future__ import annotations

import pytest

from tests.clients.adapters.java import Java
from tests.clients.matrix import JAVA_MARKS, section
from tests.clients.members import PARTITIONS, Members, details, produce
from tests.clients.model import Refused, wait_for

pytestmark = [*JAVA_MARKS, section("Groups")]

UNRELEASED_INSTANCE_ID = 111
INVALID_REGULAR_EXPRESSION = 128
UNSUPPORTED_ASSIGNOR = 112
INVALID_CONFIG = 40


@pytest.fixture
def topic(java: Java, name: str) -> str:
    java.create_topic(name, partitions=PARTITIONS)
    return name


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_come_and_go(java: Java, topic: str, members: Members, assignor: str) -> None:
    produce(java, topic, 0, 40)
    for count in (1, 2, 3):
        members.add(topic, group_remote_assignor=assignor)
        members.settle()
        assert len(members.all) == count
    found = details(java, members.group)
    assert (found["type"], found["assignor"]) == ("Consumer", assignor)
    assert found["epoch"] == found["target_epoch"] > 2
    assert [member["epoch"] for member in found["members"]] == [found["epoch"]] * 3
    assert all(sorted(member["assigned"]) == sorted(member["target"]) for member in found["members"])
    assert java.jvm.call("group_types")[members.group] == ["Consumer", "consumer"]
    for member in list(members.all[1:]):
        members.remove(member)
        members.settle()
    wait_for("all records", lambda: (members.poll(), len(members.records) >= 40)[1])
    assert details(java, members.group)["epoch"] > found["epoch"]


def test_who_stays_keeps_its_partitions(java: Java, topic: str, members: Members) -> None:
    first = members.add(topic)
    members.settle()
    second = members.add(topic)
    owned = members.settle()
    third = members.add(topic)
    after = members.settle()
    assert after[0] <= owned[0] and after[1] <= owned[1]
    members.remove(third)
    assert all(one >= kept for one, kept in zip(members.settle(), after[:2], strict=True))
    assert [first, second] == members.all


def test_offsets_are_kept_and_fenced_by_epoch(java: Java, topic: str, members: Members) -> None:
    produce(java, topic, 0, 8)
    first = members.add(topic)
    wait_for("all records", lambda: (members.poll(), len(members.records) >= 8)[1])
    first.commit({(topic, number): 2 for number in range(PARTITIONS)})
    members.remove(first)
    produce(java, topic, 8, 4)
    members.records.clear()
    members.add(topic)
    wait_for("the rest", lambda: (members.poll(), len(members.records) >= 4)[1])
    assert sorted(int(record.value or b"") for record in members.records) == [8, 9, 10, 11]


def test_a_pattern_is_resolved_by_the_broker(java: Java, name: str, members: Members) -> None:
    for suffix in ("a", "b"):
        java.create_topic(f"{name}-{suffix}")
    member = members.add(None)
    java.jvm.call("subscribe_pattern", consumer=member.number, pattern=f"{name}-[ab]")
    wanted = {(f"{name}-a", 0), (f"{name}-b", 0)}
    wait_for("both topics", lambda: (member.poll(), member.assignment() == wanted)[1])
    # One that has partitions already may trip over itself: its other thread gives them up while poll goes through them.
    refused_one = members.add(None)
    java.jvm.call("subscribe_pattern", consumer=refused_one.number, pattern=f"{name}-[a")
    with pytest.raises(Refused) as refused:
        wait_for("a refusal", lambda: refused_one.poll() and None)
    assert refused.value.code == INVALID_REGULAR_EXPRESSION


def test_a_static_member_comes_back_to_its_partitions(java: Java, topic: str, members: Members) -> None:
    members.add(topic, instance="one")
    second = members.add(topic, instance="two")
    owned = members.settle()
    epoch = details(java, members.group)["epoch"]
    members.all.remove(second)
    java.jvm.call("close_and_stay", consumer=second.number)
    members.add(topic, instance="two")
    assert members.settle() == owned
    assert details(java, members.group)["epoch"] == epoch
    rival = members.add(topic, instance="two")
    with pytest.raises(Refused) as refused:
        wait_for("a refusal", lambda: rival.poll() and None)
    assert refused.value.code == UNRELEASED_INSTANCE_ID


def test_an_unknown_assignor_is_refused(topic: str, members: Members) -> None:
    member = members.add(topic, group_remote_assignor="tidal")
    with pytest.raises(Refused) as refused:
        wait_for("a refusal", lambda: member.poll() and None)
    assert refused.value.code == UNSUPPORTED_ASSIGNOR


def test_a_group_has_configs(java: Java, topic: str, members: Members) -> None:
    def alter(**values: str) -> None:
        named = {name.replace("_", "."): value for name, value in values.items()}
        java.jvm.call("alter_config", type="GROUP", name=members.group, set=named, unset=[])

    before = java.jvm.call("config", type="GROUP", name=members.group)
    broker = java.jvm.call("config", type="BROKER", name="1")
    for name in ("heartbeat.interval.ms", "session.timeout.ms"):
        assert before[f"consumer.{name}"] == broker[f"group.consumer.{name}"]
    alter(consumer_session_timeout_ms="50000")
    assert java.jvm.call("config", type="GROUP", name=members.group)["consumer.session.timeout.ms"] == "50000"
    for wrong in ({"consumer_session_timeout_ms": "1"}, {"consumer_heartbeat_interval_ms": "60000"}):
        with pytest.raises(Refused) as refused:
            alter(**wrong)
        assert refused.value.code == INVALID_CONFIG
    members.add(topic)
    members.settle()
