"""A group moves from the classic protocol to that of KIP-848 and back, member by member, while records flow."""

from __future__ import annotations

import pytest

from tests.clients.adapters.java import Java
from tests.clients.matrix import JAVA_MARKS, section
from tests.clients.members import PARTITIONS, Members, details, produce
from tests.clients.model import wait_for

# Ten rebalances of Java members, one after the other: seconds alone, minutes beside others.
pytestmark = [*JAVA_MARKS, section("Groups"), pytest.mark.timeout(300)]


@pytest.fixture
def topic(java: Java, name: str) -> str:
    java.create_topic(name, partitions=PARTITIONS)
    return name


@pytest.mark.parametrize("assignor", ["Range", "CooperativeSticky"])
def test_a_group_moves_to_the_new_protocol_and_back(java: Java, topic: str, members: Members, assignor: str) -> None:
    """Records flow all the time, each member commits what it has read, and nothing is read twice or left out."""
    classic = {
        "partition_assignment_strategy": f"org.apache.kafka.clients.consumer.{assignor}Assignor",
        "enable_auto_commit": "true",
    }
    new = {"enable_auto_commit": "true"}
    sent = 0

    def flow() -> None:
        nonlocal sent
        produce(java, topic, sent, 8)
        sent += 8
        wait_for("what was sent", lambda: (members.poll(), len(members.records) >= sent)[1])

    def kind() -> str:
        return str(details(java, members.group)["type"])

    for _ in range(2):
        members.add(topic, "classic", **classic)
        members.settle()
        flow()
    assert kind() == "Classic"
    for step in range(2):
        members.add(topic, "consumer", **new)
        members.settle()
        flow()
        assert kind() == "Consumer"
        members.remove(members.all[0])
        members.settle()
        flow()
        upgraded = [member["upgraded"] for member in details(java, members.group)["members"]]
        assert sorted(upgraded) == [[False, True], [True, True]][step]
    for _ in range(2):
        assert kind() == "Consumer"
        members.add(topic, "classic", **classic)
        members.settle()
        flow()
        members.remove(members.all[0])
        members.settle()
        flow()
    assert kind() == "Classic"
    assert sorted(int(record.value or b"") for record in members.records) == list(range(sent))
