from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.coordinator.group.assignors.model import Group, assign, check_valid, group, groups, load, shown, topic
from tidelog.coordinator.group.assignors import Assignment, Member, Topic

uniform = partial(assign, "uniform")


def kept_at_most(of: Group) -> int:
    """With equal subscriptions: how many partitions can stay where they are if the loads differ by at most one."""
    owned: dict[str, int] = {}
    taken: set[tuple[bytes, int]] = set()
    for name in sorted(of.members):
        member = of.members[name]
        mine = {
            (topic_id, partition)
            for topic_id, partitions in member.target.items()
            if topic_id in member.topics and topic_id in of.topics
            for partition in partitions
            if 0 <= partition < of.topics[topic_id].partition_count
        } - taken
        taken |= mine
        owned[name] = len(mine)
    subscribed = next(iter(of.members.values())).topics
    total = sum(one.partition_count for topic_id, one in of.topics.items() if topic_id in subscribed)
    each, extra = divmod(total, len(of.members))
    rest = sorted((max(0, count - each) for count in owned.values()), reverse=True)
    return sum(min(count, each) for count in owned.values()) + sum(min(one, 1) for one in rest[:extra])


def kept(of: Group, assignment: Assignment) -> int:
    return sum(
        len(partitions & assignment[name].get(topic_id, frozenset()))
        for name, member in of.members.items()
        for topic_id, partitions in member.target.items()
    )


@given(groups())
def test_every_partition_has_one_owner(of: Group) -> None:
    check_valid(of, uniform(of))


@given(groups(equal=True))
def test_equal_subscriptions_get_equal_shares(of: Group) -> None:
    loads = [load(own) for own in uniform(of).values()]
    assert max(loads) - min(loads) <= 1


@given(groups(equal=True))
def test_nothing_moves_that_need_not(of: Group) -> None:
    assert kept(of, uniform(of)) >= kept_at_most(of)


@given(groups())
def test_no_single_move_makes_it_more_even(of: Group) -> None:
    assignment = uniform(of)
    loads = {name: load(own) for name, own in assignment.items()}
    for name, own in assignment.items():
        for topic_id in own:
            assert loads[name] <= min(loads[other] for other in of.subscribers(topic_id)) + 1


@given(groups())
def test_its_own_answer_stays_as_it_is(of: Group) -> None:
    first = uniform(of)
    again = uniform(of.with_targets(first))
    assert all(again[name] is first[name] for name in first)


@given(groups(), st.randoms(use_true_random=False))
def test_the_order_of_its_input_plays_no_part(of: Group, random: Random) -> None:
    names, ids = list(of.members), list(of.topics)
    random.shuffle(names)
    random.shuffle(ids)
    shuffled = uniform(Group({name: of.members[name] for name in names}, {one: of.topics[one] for one in ids}))
    assert shuffled == uniform(of)


_SEEDED = """
from tests.unit.coordinator.group.assignors.model import assign, group, shown
from tidelog.coordinator.group.assignors import ASSIGNORS
of = group({"m1": "abc", "m2": "bcd", "m3": "ad", "m4": "abcd"}, a=5, b=7, c=3, d=4)
print([sorted(shown(assign(name, of)).items()) for name in ASSIGNORS])
"""


def test_the_seed_of_the_hashes_plays_no_part() -> None:
    answers = {
        subprocess.run(
            [sys.executable, "-c", _SEEDED],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(["src", "."])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(answers) == 1


def test_a_member_that_joins_takes_its_share_and_no_more() -> None:
    before = group({f"m{number}": "ab" for number in range(4)}, a=10, b=10)
    assignment = uniform(before)
    joined = before.with_targets(assignment)
    joined.members["new"] = Member(None, None, frozenset(joined.topics), {})
    after = uniform(joined)
    assert load(after["new"]) == 4
    assert kept(joined, after) == 16


def test_what_a_member_leaves_goes_to_the_others_and_nothing_else_moves() -> None:
    before = group({f"m{number}": "a" for number in range(5)}, a=20)
    left = before.with_targets(uniform(before))
    del left.members["m2"]
    after = uniform(left)
    assert sorted(map(load, after.values())) == [5, 5, 5, 5]
    assert kept(left, after) == 16


def test_the_partitions_of_a_topic_are_spread() -> None:
    of = group({"m1": "abc", "m2": "abc", "m3": "abc"}, a=3, b=3, c=3)
    assert shown(uniform(of)) == {
        "m1": {"a": [0], "b": [0], "c": [0]},
        "m2": {"a": [1], "b": [1], "c": [1]},
        "m3": {"a": [2], "b": [2], "c": [2]},
    }


def test_a_topic_with_few_subscribers_is_served_before_one_with_many() -> None:
    of = group({"m1": "a", "m2": "ab", "m3": "b"}, a=3, b=3)
    assert sorted(map(load, uniform(of).values())) == [2, 2, 2]


def test_a_chain_of_moves_is_found_where_no_single_move_helps() -> None:
    """A gives to B and B gives to C: none of the two moves alone makes it more even."""
    of = group({"m1": "a", "m2": "ab", "m3": "b"}, a=6, b=3)
    full = {"m1": {"a": [0, 1, 2, 3]}, "m2": {"a": [4, 5], "b": [0]}, "m3": {"b": [1, 2]}}
    before = of.with_targets(
        {name: {topic(letter): frozenset(own) for letter, own in owned.items()} for name, owned in full.items()}
    )
    after = uniform(before)
    assert sorted(map(load, after.values())) == [3, 3, 3]
    assert kept(before, after) == 7


def test_more_members_than_partitions_leaves_some_without() -> None:
    of = group({f"m{number}": "a" for number in range(5)}, a=2)
    assert sorted(map(load, uniform(of).values())) == [0, 0, 0, 1, 1]


def test_a_topic_that_grew_gives_the_new_partitions_and_moves_none() -> None:
    before = group({"m1": "a", "m2": "a"}, a=4)
    grown = before.with_targets(uniform(before))
    grown.topics[topic("a")] = Topic(8)
    after = uniform(grown)
    assert sorted(map(load, after.values())) == [4, 4]
    assert kept(grown, after) == 4


def test_nobody_and_nothing() -> None:
    assert uniform(Group({}, {})) == {}
    of = group({"m1": "a", "m2": ""})
    assert uniform(of) == {"m1": {}, "m2": {}}
