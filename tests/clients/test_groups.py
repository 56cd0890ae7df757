"""Groups share partitions, remember offsets, and are looked at and tidied up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from typing import TypeVar

import pytest

from tests.clients.matrix import CLIENTS, JAVA_MARKS, feature, section
from tests.clients.model import (
    Client,
    Consumer,
    ConsumerOptions,
    Partition,
    ProducerOptions,
    Record,
    Refused,
    read,
    values,
    wait_for,
)
from tests.clients.served import Served
from tidelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.testing.wire import Wire

pytestmark = section("Groups")

NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
UNKNOWN_MEMBER_ID = 25
GROUP_SUBSCRIBED_TO_TOPIC = 86
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
T = TypeVar("T")


def wait_until_shared(members: Iterable[Consumer], partitions: set[Partition], records: list[Record]) -> None:
    """Poll all members in turn until each has its own part and nothing is left over."""
    members = list(members)

    def shared() -> bool:
        for member in members:
            records.extend(member.poll())
        parts = [member.assignment() for member in members]
        return all(parts) and sum(map(len, parts)) == len(partitions) and set().union(*parts) == partitions

    wait_for(f"{len(members)} members share {len(partitions)} partitions", shared)


def wait_for_values(members: Iterable[Consumer], wanted: set[bytes], records: list[Record]) -> None:
    members = list(members)

    def complete() -> bool:
        for member in members:
            records.extend(member.poll())
        return wanted <= set(values(records))

    wait_for(f"{len(wanted)} records at the members", complete)


def write_everywhere(client: Client, topic: str, partitions: int, text: str) -> set[bytes]:
    records = [Record(value=f"{text} {number}".encode(), partition=number) for number in range(partitions)]
    client.produce(topic, records, ProducerOptions())
    return {record.value for record in records if record.value is not None}


def on_the_wire(broker: Served, group: str) -> DescribeGroupsResponse.DescribedGroup:
    with Wire(broker.bootstrap_servers) as wire:
        return wire.call(DescribeGroupsRequest(groups=[group]), 5, DescribeGroupsResponse).groups[0]


@pytest.fixture
def shared_topic(client: Client, name: str) -> str:
    client.create_topic(name, 4)
    return name


@feature("subscribe, commit and resume")
def test_resume(client: Client, topic: str) -> None:
    client.produce(topic, [Record(value=b"%d" % number) for number in range(10)], ProducerOptions())
    with closing(client.consumer(ConsumerOptions(group=topic))) as consumer:
        consumer.subscribe(topic)
        assert values(read(consumer, 10)) == [b"%d" % number for number in range(10)]
        assert consumer.committed((topic, 0)) is None
        consumer.commit({(topic, 0): 7})
        assert consumer.committed((topic, 0)) == 7
    with closing(client.consumer(ConsumerOptions(group=topic))) as consumer:
        consumer.subscribe(topic)
        assert values(read(consumer, 3)) == [b"7", b"8", b"9"]


@feature("assignor: {assignor}", assignor=ASSIGNORS)
def test_two_members(client: Client, shared_topic: str, broker: Served, assignor: str) -> None:
    options = ConsumerOptions(group=shared_topic, assignor=assignor)
    check_two_members(client, shared_topic, options, lambda: on_the_wire(broker, shared_topic).protocol_data)


def check_two_members(client: Client, topic: str, options: ConsumerOptions, told: Callable[[], str]) -> None:
    """One after the other; `told` is the assignor that the broker tells of while both are there."""
    partitions = {(topic, number) for number in range(4)}
    records: list[Record] = []
    with closing(client.consumer(options)) as first:
        first.subscribe(topic)
        wait_until_shared([first], partitions, records)
        with closing(client.consumer(options)) as second:
            second.subscribe(topic)
            wait_until_shared([first, second], partitions, records)
            assert len(first.assignment()) == len(second.assignment()) == 2
            assert told() == (options.remote_assignor or options.assignor)
            wait_for_values([first, second], write_everywhere(client, topic, 4, "shared"), records)
        wait_until_shared([first], partitions, records)
        wait_for_values([first], write_everywhere(client, topic, 4, "alone"), records)


def static_member(client: Client, topic: str, instance: str, **options: str) -> Consumer:
    chosen = ConsumerOptions(group=topic, instance=instance, **(options or {"assignor": "range"}))
    consumer = client.consumer(chosen)
    consumer.subscribe(topic)
    return consumer


def look_around_a_return(client: Client, topic: str, look: Callable[[], T], **options: str) -> tuple[T, T]:
    """What `look` sees while one of two static members is away, and when it is back. Nobody's partitions move."""
    partitions = {(topic, number) for number in range(4)}
    records: list[Record] = []
    with closing(static_member(client, topic, "one", **options)) as one:
        with closing(static_member(client, topic, "two", **options)) as two:
            wait_until_shared([one, two], partitions, records)
            parts = (one.assignment(), two.assignment())
        before = look()
        with closing(static_member(client, topic, "two", **options)) as two:
            wait_until_shared([one, two], partitions, records)
            assert (one.assignment(), two.assignment()) == parts
            after = look()
            wait_for_values([one, two], write_everywhere(client, topic, 4, "back"), records)
    return before, after


@feature("static membership")
def test_static_member(client: Client, shared_topic: str, broker: Served) -> None:
    away, back = look_around_a_return(client, shared_topic, lambda: on_the_wire(broker, shared_topic))
    assert away.group_state == "Stable"
    before = {member.group_instance_id: member.member_id for member in away.members}
    assert set(before) == {"one", "two"}
    after = {member.group_instance_id: member.member_id for member in back.members}
    assert after["one"] == before["one"]
    assert after["two"] != before["two"]


def on_the_wire_new(broker: Served, group: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
    with Wire(broker.bootstrap_servers) as wire:
        request = ConsumerGroupDescribeRequest(group_ids=[group])
        return wire.call(request, 1, ConsumerGroupDescribeResponse).groups[0]


@feature("consumer protocol: {assignor}", assignor=("uniform", "range"))
def test_two_members_of_the_consumer_protocol(client: Client, shared_topic: str, broker: Served, assignor: str) -> None:
    options = ConsumerOptions(group=shared_topic, remote_assignor=assignor)
    check_two_members(client, shared_topic, options, lambda: on_the_wire_new(broker, shared_topic).assignor_name)


@feature("consumer protocol: static membership")
def test_static_member_of_the_consumer_protocol(client: Client, shared_topic: str, broker: Served) -> None:
    """It leaves and comes back within its session: the group's epoch stays, and nobody's partitions move."""
    before, after = look_around_a_return(
        client, shared_topic, lambda: on_the_wire_new(broker, shared_topic), remote_assignor="uniform"
    )
    assert {found.instance_id for found in before.members} == {"one", "two"}
    assert after.group_epoch == before.group_epoch
    assert after.assignment_epoch == before.assignment_epoch


@feature("remove a static member")
def test_remove_static_member(client: Client, shared_topic: str, broker: Served) -> None:
    partitions = {(shared_topic, number) for number in range(4)}
    with closing(static_member(client, shared_topic, "one")) as one:
        with closing(static_member(client, shared_topic, "two")) as two:
            wait_until_shared([one, two], partitions, [])
        client.remove_static_member(shared_topic, "two")
        assert [member.group_instance_id for member in on_the_wire(broker, shared_topic).members] == ["one"]
        with pytest.raises(Refused) as gone:
            client.remove_static_member(shared_topic, "two")
        assert gone.value.code == UNKNOWN_MEMBER_ID
        wait_until_shared([one], partitions, [])


@feature("one group of all clients")
@pytest.mark.java
@JAVA_MARKS[1]
@pytest.mark.timeout(300)  # four libraries, one in a JVM, wait for each other to rebalance: minutes beside others
def test_mixed_group(client_of: Callable[[str], Client], name: str) -> None:
    # aiokafka is the first to leave: its stop() waits for a join that is under way, and the others no longer poll then.
    clients = sorted((client_of(one) for one in CLIENTS), key=lambda client: client.name == "aiokafka")
    clients[0].create_topic(name, 4)
    partitions = {(name, number) for number in range(4)}
    records: list[Record] = []
    with ExitStack() as stack:
        members = []
        for client in clients:
            member = stack.enter_context(closing(client.consumer(ConsumerOptions(group=name, assignor="range"))))
            member.subscribe(name)
            members.append(member)
        wait_until_shared(members, partitions, records)
        for client in clients:
            group = client.group(name)
            assert (group.state, group.protocol, len(group.members)) == ("Stable", "range", 4)
            wait_for_values(members, write_everywhere(client, name, 4, type(client).__name__), records)


@feature("list and describe groups")
def test_describe_group(client: Client, topic: str) -> None:
    with closing(client.consumer(ConsumerOptions(group=topic, assignor="range"))) as consumer:
        consumer.subscribe(topic)
        wait_until_shared([consumer], {(topic, 0)}, [])
        assert topic in client.groups()
        group = client.group(topic)
        assert (group.state, group.protocol) == ("Stable", "range")
        assert group.members == (frozenset({(topic, 0)}),)
    group = client.group(topic)
    assert (group.state, group.members) == ("Empty", ())


@feature("delete a group")
def test_delete_group(client: Client, topic: str) -> None:
    with closing(client.consumer(ConsumerOptions(group=topic))) as consumer:
        consumer.subscribe(topic)
        wait_until_shared([consumer], {(topic, 0)}, [])
        consumer.commit({(topic, 0): 0})
        with pytest.raises(Refused) as busy:
            client.delete_group(topic)
        assert busy.value.code == NON_EMPTY_GROUP
    client.delete_group(topic)
    assert topic not in client.groups()
    with pytest.raises(Refused) as gone:
        client.delete_group(topic)
    assert gone.value.code == GROUP_ID_NOT_FOUND


@feature("read a group's offsets")
def test_group_offsets(client: Client, shared_topic: str) -> None:
    assert client.group_offsets(shared_topic) == {}
    with closing(client.consumer(ConsumerOptions(group=shared_topic))) as consumer:
        consumer.subscribe(shared_topic)
        wait_until_shared([consumer], {(shared_topic, number) for number in range(4)}, [])
        consumer.commit({(shared_topic, 1): 11, (shared_topic, 3): 33})
    assert client.group_offsets(shared_topic) == {(shared_topic, 1): 11, (shared_topic, 3): 33}


@feature("alter a group's offsets")
def test_alter_group_offsets(client: Client, topic: str) -> None:
    client.produce(topic, [Record(value=b"%d" % number) for number in range(10)], ProducerOptions())
    client.alter_group_offsets(topic, {(topic, 0): 8})
    assert client.group_offsets(topic) == {(topic, 0): 8}
    with closing(client.consumer(ConsumerOptions(group=topic))) as consumer:
        consumer.subscribe(topic)
        assert values(read(consumer, 2)) == [b"8", b"9"]
        with pytest.raises(Refused) as busy:
            client.alter_group_offsets(topic, {(topic, 0): 1})
        assert busy.value.code == UNKNOWN_MEMBER_ID
    client.alter_group_offsets(topic, {(topic, 0): 1})
    assert client.group_offsets(topic) == {(topic, 0): 1}


@feature("delete a group's offsets")
def test_delete_group_offsets(client: Client, shared_topic: str) -> None:
    with closing(client.consumer(ConsumerOptions(group=shared_topic))) as consumer:
        consumer.subscribe(shared_topic)
        wait_until_shared([consumer], {(shared_topic, number) for number in range(4)}, [])
        consumer.commit({(shared_topic, 0): 1, (shared_topic, 1): 2})
        with pytest.raises(Refused) as subscribed:
            client.delete_group_offsets(shared_topic, (shared_topic, 0))
        assert subscribed.value.code == GROUP_SUBSCRIBED_TO_TOPIC
    client.delete_group_offsets(shared_topic, (shared_topic, 0))
    assert client.group_offsets(shared_topic) == {(shared_topic, 1): 2}
