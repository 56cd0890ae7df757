"""Groups for the assignors: strategies for whole groups with a history, and what every assignment has to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st

from tidelog.coordinator.chores import finish
from tidelog.coordinator.group.assignors import ASSIGNORS, Assignment, Member, Topic

TOPICS = [bytes([number]) * 16 for number in range(1, 7)]
NAMES = [f"member-{number:02}" for number in range(12)]


class Group(NamedTuple):
    members: dict[str, Member]
    topics: dict[bytes, Topic]

    def with_targets(self, assignment: Assignment) -> Group:
        return Group(
            {name: member._replace(target=assignment[name]) for name, member in self.members.items()}, self.topics
        )

    def subscribers(self, topic_id: bytes) -> list[str]:
        return [name for name, member in self.members.items() if topic_id in member.topics]


def group(members: Mapping[str, str], **counts: int) -> Group:
    """Topics are letters: group({"m1": "ab", "m2": "b"}, a=3, b=2)."""
    return Group(
        {name: Member(None, None, frozenset(map(topic, topics)), {}) for name, topics in members.items()},
        {topic(letter): Topic(count) for letter, count in counts.items()},
    )


def assign(name: str, of: Group) -> Assignment:
    return finish(ASSIGNORS[name](of.members, of.topics))


def topic(letter: str) -> bytes:
    return letter.encode() * 16


def shown(assignment: Assignment) -> dict[str, dict[str, list[int]]]:
    return {
        name: {chr(topic_id[0]): sorted(partitions) for topic_id, partitions in sorted(own.items())}
        for name, own in assignment.items()
    }


@st.composite
def groups(draw: st.DrawFn, *, equal: bool = False) -> Group:
    """Any group, with targets that may be stale, double or impossible: a topic can have been deleted and made again, a
    member can have changed its mind, and records can come from anybody. The sizes shrink, the rest follows a seed."""
    random = Random(draw(st.integers(min_value=0, max_value=2**32)))
    topics = {
        topic_id: Topic(random.randint(1, 12))
        for topic_id in random.sample(TOPICS, draw(st.integers(min_value=0, max_value=len(TOPICS))))
    }
    everybody = _some_topics(random)
    subscriptions = [everybody] if equal else [everybody, *(_some_topics(random) for _ in range(random.randint(1, 5)))]
    stale = draw(st.sampled_from((0.0, 0.3, 1.0)))
    members = {
        name: Member(
            random.choice((None, None, "static-a", "static-b")),
            None,
            random.choice(subscriptions),
            _target(random, stale),
        )
        for name in random.sample(NAMES, draw(st.integers(min_value=1, max_value=len(NAMES))))
    }
    return Group(members, topics)


def _some_topics(random: Random) -> frozenset[bytes]:
    return frozenset(random.sample(TOPICS, random.randint(0, len(TOPICS))))


def _target(random: Random, probability: float) -> dict[bytes, frozenset[int]]:
    return {
        topic_id: frozenset(random.randint(-1, 14) for _ in range(random.randint(0, 6)))
        for topic_id in TOPICS
        if random.random() < probability
    }


def check_valid(of: Group, assignment: Assignment) -> None:
    """Every partition that somebody subscribes to has exactly one owner, a subscriber; nothing else is assigned."""
    assert assignment.keys() == of.members.keys()
    owners: Counter[tuple[bytes, int]] = Counter()
    for name, own in assignment.items():
        assert own.keys() <= of.members[name].topics & of.topics.keys(), name
        for topic_id, partitions in own.items():
            assert partitions, "a topic without partitions is left out"
            owners.update((topic_id, partition) for partition in partitions)
    expected = {
        (topic_id, partition): 1
        for topic_id, one in of.topics.items()
        if of.subscribers(topic_id)
        for partition in range(one.partition_count)
    }
    assert owners == expected


def load(own: Mapping[bytes, frozenset[int]]) -> int:
    return sum(map(len, own.values()))
