"""The way of a member from what it has to what it shall have, step by step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.group.consumer.model import Current, MemberState
from tidelog.coordinator.group.consumer.ownership import is_subset, reconcile

T, U = b"t" * 16, b"u" * 16
STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)


def free(topic_id: bytes, partition: int) -> bool:
    return True


def taken(topic_id: bytes, partition: int) -> bool:
    return False


def test_there_is_no_step_for_who_is_there() -> None:
    current = Current(3, 2, STABLE, {T: {0: 1}})
    assert reconcile(current, 3, {T: frozenset({5})}, None, free) is current


def test_what_is_free_is_given_in_the_epoch_of_the_target() -> None:
    got = reconcile(Current(), 4, {T: frozenset({0, 1})}, {}, free)
    assert got == Current(4, 0, STABLE, {T: {0: 4, 1: 4}})


def test_what_is_taken_is_waited_for() -> None:
    waiting = reconcile(Current(), 4, {T: frozenset({0})}, {}, taken)
    assert waiting == Current(4, 0, UNRELEASED, {})
    assert reconcile(waiting, 4, {T: frozenset({0})}, None, taken) is waiting
    assert reconcile(waiting, 4, {T: frozenset({0})}, None, free) == Current(4, 4, STABLE, {T: {0: 4}})


def test_what_is_lost_is_given_up_before_anything_is_given() -> None:
    had = Current(3, 2, STABLE, {T: {0: 1, 1: 2}})
    target = {T: frozenset({1}), U: frozenset({0})}
    asked = reconcile(had, 4, target, None, free)
    assert asked == Current(3, 3, UNREVOKED, {T: {1: 2}}, {T: {0: 1}})
    assert reconcile(asked, 4, target, None, free) is asked
    assert reconcile(asked, 4, target, {T: {0, 1}}, free) is asked
    assert reconcile(asked, 4, target, {T: {1}}, free) == Current(4, 3, STABLE, {T: {1: 2}, U: {0: 4}})


def test_a_member_that_has_let_go_already_is_not_asked() -> None:
    had = Current(3, 2, STABLE, {T: {0: 1}})
    assert reconcile(had, 4, {}, {}, free) == Current(4, 3, STABLE, {})


def test_after_one_revocation_may_follow_another() -> None:
    asked = Current(3, 3, UNREVOKED, {T: {1: 2, 2: 2}}, {T: {0: 1}})
    again = reconcile(asked, 6, {T: frozenset({1})}, {T: {1, 2}}, free)
    assert again == Current(4, 3, UNREVOKED, {T: {1: 2}}, {T: {2: 2}})


def test_a_state_of_the_future_is_led_on_like_one_that_waits() -> None:
    strange = Current(3, 2, MemberState.UNKNOWN, {T: {0: 1}})
    assert reconcile(strange, 4, {T: frozenset({0})}, {}, taken) == Current(4, 3, STABLE, {T: {0: 1}})


def test_subsets() -> None:
    held = {T: {0: 1, 1: 1}}
    assert is_subset({}, held) and is_subset({T: {1}}, held)
    assert not is_subset({T: {2}}, held) and not is_subset({U: {0}}, held)


PARTS = st.frozensets(st.integers(0, 5), max_size=6)


@given(has=PARTS, wanted=PARTS, others=PARTS, owned=st.none() | PARTS)
def test_a_step_never_gives_what_others_have_nor_forgets_what_is_not_given_up(
    has: frozenset[int], wanted: frozenset[int], others: frozenset[int], owned: frozenset[int] | None
) -> None:
    others -= has
    had = Current(1, 0, STABLE, {T: dict.fromkeys(has, 1)} if has else {})
    claims = None if owned is None else ({T: set(owned)} if owned else {})
    got = reconcile(had, 2, {T: wanted} if wanted else {}, claims, lambda _, partition: partition not in others)
    assigned, revoking = set(got.assigned.get(T, {})), set(got.revoking.get(T, {}))
    assert not assigned & others
    assert not assigned & revoking
    gone = has - assigned - revoking
    assert not gone if owned is None else not gone & owned
    assert got.epoch >= had.epoch
