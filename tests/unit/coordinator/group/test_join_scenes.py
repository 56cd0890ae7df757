"""JoinGroup, scene by scene."""

from __future__ import annotations

from tests.unit.coordinator.group.script import check


def test_the_first_members_of_a_group_wait_for_others() -> None:
    check(
        """
        > a join
        a: join MEMBER_ID_REQUIRED, id a1
        > a join
        > wait 2999
        > b join
        b: join MEMBER_ID_REQUIRED, id b1
        > b join
        > wait 1
        > c join
        c: join MEMBER_ID_REQUIRED, id c1
        > c join
        > wait 2999
        > wait 1
        > wait 3000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m c1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        c: joined generation 1 as c1, consumer/range, leader a1
        """
    )


def test_new_members_prolong_the_wait_only_up_to_the_rebalance_time_out() -> None:
    check(
        """
        > a join rebalance=7000
        a: join MEMBER_ID_REQUIRED, id a1
        > a join rebalance=7000
        > b join rebalance=7000 v=3
        > wait 3000
        > c join rebalance=7000 v=3
        > wait 3000
        > d join rebalance=7000 v=3
        > wait 999
        > wait 1
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m c1=m d1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        c: joined generation 1 as c1, consumer/range, leader a1
        d: joined generation 1 as d1, consumer/range, leader a1
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_without_a_delay_the_first_member_starts_at_once() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > show
        Stable, generation 1, leader a1 [a1=A]
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_before_version_4_nobody_is_asked_to_come_back_with_an_id() -> None:
    check(
        """
        > a join v=0 session=8000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > show
        CompletingRebalance, generation 1, leader a1 [a1=]
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_an_id_that_was_handed_out_and_not_used_expires_with_the_session_time_out() -> None:
    check(
        """
        > a join session=8000
        a: join MEMBER_ID_REQUIRED, id a1
        > show
        Empty, generation 0, leader None [], pending 1
        > wait 7999
        > show
        Empty, generation 0, leader None [], pending 1
        > wait 1
        > show
        Empty, generation 0, leader None []
        > a join
        a: join UNKNOWN_MEMBER_ID, id a1
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_rebalance_waits_for_an_id_that_was_handed_out() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > b join session=9000
        b: join MEMBER_ID_REQUIRED, id b1
        > a join
        > show
        PreparingRebalance, generation 1, leader a1 [a1=A], pending 1
        > a heartbeat
        a: heartbeat REBALANCE_IN_PROGRESS
        > wait 8999
        > show
        PreparingRebalance, generation 1, leader a1 [a1=A], pending 1
        > wait 1
        a: joined generation 2 as a1, consumer/range, leader a1 [a1=m]
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_an_unknown_member_id_is_refused() -> None:
    check(
        """
        > a join id=a-nobody
        a: join UNKNOWN_MEMBER_ID, id a-nobody
        > show
        no group
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > b join id=b-nobody
        b: join UNKNOWN_MEMBER_ID, id b-nobody
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_group_without_a_protocol_type_or_protocols_is_not_made() -> None:
    check(
        """
        > a join type= v=3
        a: join INCONSISTENT_GROUP_PROTOCOL
        > a join protocols= v=3
        a: join INCONSISTENT_GROUP_PROTOCOL
        > show
        no group
        > log
        """
    )


def test_a_member_with_another_protocol_type_or_no_common_protocol_is_refused() -> None:
    check(
        """
        > a join protocols=range:x,roundrobin:y v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=x]
        > b join type=connect protocols=range:x v=3
        b: join INCONSISTENT_GROUP_PROTOCOL
        > b join protocols=sticky:x v=3
        b: join INCONSISTENT_GROUP_PROTOCOL
        > b join protocols=sticky:x,roundrobin:z v=3
        > a join protocols=range:x,roundrobin:y
        a: joined generation 2 as a1, consumer/roundrobin, leader a1 [a1=y b1=z]
        b: joined generation 2 as b1, consumer/roundrobin, leader a1
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_the_protocol_that_most_members_like_best_is_chosen_among_those_that_all_support() -> None:
    check(
        """
        > a join protocols=range:ra,sticky:sa,roundrobin:oa v=3
        > b join protocols=sticky:sb,range:rb v=3
        > c join protocols=sticky:sc,range:rc v=3
        > wait 6000
        a: joined generation 1 as a1, consumer/sticky, leader a1 [a1=sa b1=sb c1=sc]
        b: joined generation 1 as b1, consumer/sticky, leader a1
        c: joined generation 1 as c1, consumer/sticky, leader a1
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_session_time_outs_outside_the_bounds_are_refused() -> None:
    check(
        """
        > a join session=5999
        a: join INVALID_SESSION_TIMEOUT
        > a join session=1800001
        a: join INVALID_SESSION_TIMEOUT
        > a join session=6000
        a: join MEMBER_ID_REQUIRED, id a1
        """
    )


def test_an_empty_group_id_is_refused_everywhere() -> None:
    check(
        """
        > a join group=
        a: join INVALID_GROUP_ID
        > a heartbeat group=
        a: heartbeat INVALID_GROUP_ID
        > a leave group=
        a: left INVALID_GROUP_ID []
        """
    )


def test_a_full_group_takes_nobody_else() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > b join v=3
        > a join
        a: joined generation 2 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 2 as b1, consumer/range, leader a1
        > c join v=3
        c: join GROUP_MAX_SIZE_REACHED
        > show
        CompletingRebalance, generation 2, leader a1 [a1=A b1=]
        """,
        group_max_size=2,
        group_initial_rebalance_delay_ms=0,
    )


def test_only_as_many_as_fit_may_join_a_new_group() -> None:
    check(
        """
        > a join v=3
        > b join v=3
        > c join v=3
        c: join GROUP_MAX_SIZE_REACHED
        > wait 6000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        """,
        group_max_size=2,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_follower_that_rejoins_unchanged_gets_its_generation_again() -> None:
    check(
        """
        > a join v=3
        > b join v=3
        > wait 6000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        > a sync a=A b=B
        a: synced A (consumer/range)
        > b sync
        b: synced B (consumer/range)
        > b join
        b: joined generation 1 as b1, consumer/range, leader a1
        > b sync
        b: synced B (consumer/range)
        > show
        Stable, generation 1, leader a1 [a1=A b1=B]
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_follower_with_new_metadata_starts_a_rebalance() -> None:
    check(
        """
        > a join v=3
        > b join v=3
        > wait 6000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        > a sync a=A b=B
        a: synced A (consumer/range)
        > b sync
        b: synced B (consumer/range)
        > b join protocols=range:changed
        > a heartbeat
        a: heartbeat REBALANCE_IN_PROGRESS
        > a join
        a: joined generation 2 as a1, consumer/range, leader a1 [a1=m b1=changed]
        b: joined generation 2 as b1, consumer/range, leader a1
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_leader_that_rejoins_starts_a_rebalance_even_unchanged() -> None:
    check(
        """
        > a join v=3
        > b join v=3
        > wait 6000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        > a sync a=A b=B
        a: synced A (consumer/range)
        > b sync
        b: synced B (consumer/range)
        > a join
        > b heartbeat
        b: heartbeat REBALANCE_IN_PROGRESS
        > b join
        a: joined generation 2 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 2 as b1, consumer/range, leader a1
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_member_that_missed_its_join_answer_asks_again_before_the_sync() -> None:
    check(
        """
        > a join v=3
        > b join v=3
        > wait 6000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        > b join
        b: joined generation 1 as b1, consumer/range, leader a1
        > a join
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m]
        > show
        CompletingRebalance, generation 1, leader a1 [a1= b1=]
        > b join protocols=range:changed
        > show
        PreparingRebalance, generation 1, leader a1 [a1= b1=]
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_member_that_joins_twice_gets_the_second_answer() -> None:
    check(
        """
        > a join
        a: join MEMBER_ID_REQUIRED, id a1
        > a join
        > a join
        a: join REBALANCE_IN_PROGRESS, id a1
        > wait 3000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_rebalance_time_out_leaves_out_dynamic_members_that_do_not_come_back() -> None:
    check(
        """
        > a join v=3 rebalance=20000
        > b join v=3 rebalance=20000 session=30000
        > wait 6000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        > a sync a=A b=B
        a: synced A (consumer/range)
        > b sync
        b: synced B (consumer/range)
        > a join rebalance=20000
        > wait 19999
        > wait 1
        a: joined generation 2 as a1, consumer/range, leader a1 [a1=m]
        > b heartbeat
        b: heartbeat UNKNOWN_MEMBER_ID
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_an_absent_leader_is_replaced_by_one_who_has_joined() -> None:
    check(
        """
        > a join v=3 rebalance=20000 session=30000
        > b join v=3 rebalance=20000
        > wait 6000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        > a sync a=A b=B
        a: synced A (consumer/range)
        > b sync
        b: synced B (consumer/range)
        > b join protocols=range:changed rebalance=20000
        > wait 20000
        b: joined generation 2 as b1, consumer/range, leader b1 [b1=changed]
        """,
        group_initial_rebalance_delay_ms=3_000,
    )
