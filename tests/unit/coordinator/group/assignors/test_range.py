from __future__ import annotations

from functools import partial
from itertools import pairwise

from hypothesis import given

from tests.unit.coordinator.group.assignors.model import Group, assign, check_valid, group, groups, shown

range_ = partial(assign, "range")


@given(groups())
def test_every_partition_has_one_owner(of: Group) -> None:
    check_valid(of, range_(of))


@given(groups())
def test_a_member_gets_consecutive_partitions_and_no_more_than_one_more_than_another(of: Group) -> None:
    assignment = range_(of)
    for topic_id in of.topics:
        sizes = []
        for name in of.subscribers(topic_id):
            own = sorted(assignment[name].get(topic_id, ()))
            assert all(right == left + 1 for left, right in pairwise(own))
            sizes.append(len(own))
        assert not sizes or max(sizes) - min(sizes) <= 1


@given(groups(equal=True))
def test_topics_of_the_same_size_are_cut_alike(of: Group) -> None:
    for own in range_(of).values():
        by_size: dict[int, set[frozenset[int]]] = {}
        for topic_id, partitions in own.items():
            by_size.setdefault(of.topics[topic_id].partition_count, set()).add(partitions)
        assert all(len(cuts) == 1 for cuts in by_size.values())


@given(groups())
def test_what_was_before_plays_no_part_and_its_own_answer_stays_the_same_object(of: Group) -> None:
    first = range_(of)
    again = range_(of.with_targets(first))
    assert all(again[name] is first[name] for name in first)


def test_the_first_members_get_what_cannot_be_divided() -> None:
    of = group({"m3": "ab", "m1": "ab", "m2": "b"}, a=3, b=7)
    assert shown(range_(of)) == {
        "m1": {"a": [0, 1], "b": [0, 1, 2]},
        "m2": {"b": [3, 4]},
        "m3": {"a": [2], "b": [5, 6]},
    }


def test_a_static_member_keeps_its_place_under_another_member_id() -> None:
    of = group({"x1": "a", "x2": "a", "x3": "a"}, a=6)
    of.members["x2"] = of.members["x2"]._replace(instance_id="i")
    before = range_(of)
    of.members["zzz"] = of.members.pop("x2")
    after = range_(of)
    assert after["zzz"] == before["x2"]
    assert [after[name] for name in ("x1", "x3")] == [before[name] for name in ("x1", "x3")]
