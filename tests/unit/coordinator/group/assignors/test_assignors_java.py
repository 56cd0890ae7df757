"""Our assignors beside Apache's own: the same groups, through a history of joins, departures and new partitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.unit.coordinator.group.assignors.model import TOPICS, Group, assign, check_valid, load
from tests.unit.java_witness import Witness
from tidelog.coordinator.group.assignors import Assignment, Member, Topic
from tools.apache import apache_libs, why_not

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(why_not() is not None, reason=f"Apache's assignors cannot run here: {why_not()}"),
]


class Apache(Witness):
    def assign(self, name: str, of: Group) -> Assignment:
        topics = [f"t:{topic_id[0]}:{one.partition_count}" for topic_id, one in of.topics.items()]
        members = [
            f"m:{member_id}:{one.instance_id or ''}:{','.join(str(topic[0]) for topic in one.topics)}:{_text(one)}"
            for member_id, one in of.members.items()
        ]
        _, *answers = self.ask(name, *topics, *members).split()
        return dict(map(_member, answers))


def _text(member: Member) -> str:
    return "/".join(f"{topic[0]}={'.'.join(map(str, sorted(own)))}" for topic, own in member.target.items() if own)


def _member(answer: str) -> tuple[str, dict[bytes, frozenset[int]]]:
    name, _, owned = answer.partition(":")
    pairs = [pair.split("=") for pair in owned.split("/") if pair]
    return name, {bytes([int(topic)]) * 16: frozenset(map(int, own.split("."))) for topic, own in pairs}


@pytest.fixture(scope="module")
def apache() -> Iterator[Apache]:
    libs = apache_libs()
    assert libs is not None
    with Apache(libs, Path(__file__).with_name("Assignors.java")) as witness:
        yield witness


def change(group: Group, random: Random, equal: bool) -> None:
    """A member joins or leaves, a topic grows or goes, somebody changes its subscription."""
    what = random.random()
    if what < 0.45 or len(group.members) < 2:
        topics = frozenset(TOPICS) if equal else frozenset(random.sample(TOPICS, random.randint(1, len(TOPICS))))
        instance = f"static-{random.randint(0, 99):02}" if random.random() < 0.3 else None
        if instance is None or all(one.instance_id != instance for one in group.members.values()):
            group.members[f"member-{random.randint(0, 999):03}"] = Member(instance, None, topics, {})
    elif what < 0.8:
        del group.members[random.choice(sorted(group.members))]
    elif what < 0.95:
        topic_id = random.choice(TOPICS)
        count = group.topics[topic_id].partition_count if topic_id in group.topics else 0
        group.topics[topic_id] = Topic(count + random.randint(1, 4))
    else:
        group.topics.pop(random.choice(TOPICS), None)


def moved(of: Group, assignment: Assignment) -> int:
    """Partitions that an owner had and, though it is still there, has no more."""
    return sum(
        len(partitions - assignment[name].get(topic_id, frozenset()))
        for name, member in of.members.items()
        for topic_id, partitions in member.target.items()
        if topic_id in of.topics
    )


def spread(assignment: Assignment) -> int:
    """The sum of the squares of the loads: the lower the more even."""
    return sum(load(own) ** 2 for own in assignment.values())


@pytest.mark.parametrize("seed", range(6))
def test_range_cuts_as_apache_cuts(apache: Apache, seed: int) -> None:
    random = Random(seed)
    group = Group({}, {topic_id: Topic(random.randint(1, 9)) for topic_id in TOPICS[:4]})
    for _ in range(30):
        change(group, random, equal=seed % 2 == 0)
        ours = assign("range", group)
        assert ours == apache.assign("range", group)
        group = group.with_targets(ours)


@pytest.mark.parametrize("seed", range(6))
def test_uniform_is_as_even_as_apaches_and_with_equal_subscriptions_moves_no_more(apache: Apache, seed: int) -> None:
    random = Random(seed)
    equal = seed % 2 == 0
    group = Group({}, {topic_id: Topic(random.randint(1, 9)) for topic_id in TOPICS[:4]})
    for _ in range(30):
        change(group, random, equal=equal)
        ours = assign("uniform", group)
        theirs = apache.assign("uniform", group)
        check_valid(group, theirs)
        assert spread(ours) <= spread(theirs)
        if equal:
            assert moved(group, ours) <= moved(group, theirs)
        group = group.with_targets(ours)
