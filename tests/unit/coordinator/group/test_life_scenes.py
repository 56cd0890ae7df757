"""How members and groups live and go, scene by scene."""

from __future__ import annotations

from tests.unit.coordinator.group.script import check


def test_a_silent_member_is_out_after_its_session_time_out_and_the_others_rebalance() -> None:
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
        > wait 9999
        > a heartbeat
        a: heartbeat NONE
        > wait 1
        > a heartbeat
        a: heartbeat REBALANCE_IN_PROGRESS
        > show
        PreparingRebalance, generation 1, leader a1 [a1=A]
        > a join
        a: joined generation 2 as a1, consumer/range, leader a1 [a1=m]
        > b heartbeat
        b: heartbeat UNKNOWN_MEMBER_ID
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_commit_keeps_a_session_alive_like_a_heartbeat() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > wait 9000
        > a commit t-0=1
        a: committed t-0 NONE
        > wait 9000
        > a commit t-0=2
        a: committed t-0 NONE
        > show
        Stable, generation 1, leader a1 [a1=A]
        > wait 10000
        > show
        Empty, generation 2, leader None []
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_member_that_waits_for_the_others_needs_no_heartbeat() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > b join v=3 rebalance=60000 session=10000
        > wait 5000
        > a heartbeat
        a: heartbeat REBALANCE_IN_PROGRESS
        > wait 9000
        > a heartbeat
        a: heartbeat REBALANCE_IN_PROGRESS
        > wait 9000
        > show
        PreparingRebalance, generation 1, leader a1 [a1=A b1=]
        > a join
        a: joined generation 2 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 2 as b1, consumer/range, leader a1
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_new_member_that_waits_is_given_up_after_five_minutes() -> None:
    check(
        """
        > a join v=3 rebalance=900000 session=1000000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > b join v=3 rebalance=900000
        > wait 299999
        > wait 1
        b: join UNKNOWN_MEMBER_ID
        > show
        PreparingRebalance, generation 1, leader a1 [a1=A]
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_members_that_have_joined_and_do_not_sync_are_out_after_the_rebalance_time_out() -> None:
    check(
        """
        > a join v=3 rebalance=15000 session=40000
        > b join v=3 rebalance=15000 session=40000
        > wait 6000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        > a sync a=A b=B
        a: synced A (consumer/range)
        > wait 14999
        > show
        Stable, generation 1, leader a1 [a1=A b1=B]
        > wait 1
        > show
        PreparingRebalance, generation 1, leader a1 [a1=A]
        > b sync
        b: sync UNKNOWN_MEMBER_ID
        > a heartbeat
        a: heartbeat REBALANCE_IN_PROGRESS
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_leader_that_never_syncs_is_out_and_the_others_go_on_without_it() -> None:
    check(
        """
        > a join v=3 rebalance=15000 session=40000
        > b join v=3 rebalance=15000 session=40000
        > wait 6000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        > b sync
        > wait 15000
        b: sync REBALANCE_IN_PROGRESS
        > show
        PreparingRebalance, generation 1, leader b1 [b1=]
        > b join
        b: joined generation 2 as b1, consumer/range, leader b1 [b1=m]
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_leader_that_leaves_has_a_successor() -> None:
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
        > a leave
        a: left NONE [NONE]
        > show
        PreparingRebalance, generation 1, leader b1 [b1=B]
        > b join
        b: joined generation 2 as b1, consumer/range, leader b1 [b1=m]
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_group_whose_last_member_leaves_is_empty_and_remembers_its_generation() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > a commit t-0=7
        a: committed t-0 NONE
        > a leave
        a: left NONE [NONE]
        > show
        Empty, generation 2, leader None []
        > log
        GroupWritten /None generation 0 None []
        GroupWritten consumer/range generation 1 a1 [a1=A]
        OffsetCommitted t-0=7
        GroupWritten consumer/None generation 2 None []
        > restart
        > show
        Empty, generation 2, leader None []
        > a fetch
        a: offsets t-0=7
        > b join v=3
        b: joined generation 3 as b1, consumer/range, leader b1 [b1=m]
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_group_can_be_deleted_only_when_it_is_empty() -> None:
    check(
        """
        > delete
        deleted: GROUP_ID_NOT_FOUND
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > delete
        deleted: NON_EMPTY_GROUP
        > a sync a=A
        a: synced A (consumer/range)
        > a commit t-0=7 t-1=8
        a: committed t-0 NONE t-1 NONE
        > delete
        deleted: NON_EMPTY_GROUP
        > a leave
        a: left NONE [NONE]
        > delete
        deleted: NONE
        > show
        no group
        > a fetch
        a: offsets none
        > delete
        deleted: GROUP_ID_NOT_FOUND
        > log
        GroupWritten /None generation 0 None []
        GroupWritten consumer/range generation 1 a1 [a1=A]
        OffsetCommitted t-0=7
        OffsetCommitted t-1=8
        GroupWritten consumer/None generation 2 None []
        OffsetRemoved t-0
        OffsetRemoved t-1
        GroupRemoved
        > restart
        > show
        no group
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_leaving_before_version_3_carries_the_error_of_the_one_member() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > b leave v=2 id=nobody
        b: left UNKNOWN_MEMBER_ID []
        > a leave v=2
        a: left NONE []
        > b leave id=nobody
        b: left NONE [UNKNOWN_MEMBER_ID]
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_leaving_a_group_that_is_not_there_names_every_member_as_unknown() -> None:
    check(
        """
        > a leave id=nobody
        a: left NONE [UNKNOWN_MEMBER_ID]
        > a leave v=1 id=nobody
        a: left UNKNOWN_MEMBER_ID []
        """
    )


def test_a_member_that_was_asked_to_come_back_can_leave_before_it_does() -> None:
    check(
        """
        > a join
        a: join MEMBER_ID_REQUIRED, id a1
        > show
        Empty, generation 0, leader None [], pending 1
        > a leave
        a: left NONE [NONE]
        > show
        Empty, generation 0, leader None []
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_parked_join_of_a_member_that_leaves_is_answered() -> None:
    check(
        """
        > a join
        a: join MEMBER_ID_REQUIRED, id a1
        > a join
        > a leave
        a: join UNKNOWN_MEMBER_ID
        a: left NONE [NONE]
        > wait 3000
        > show
        Empty, generation 1, leader None []
        > log
        GroupWritten /None generation 0 None []
        GroupWritten consumer/None generation 1 None []
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_group_survives_a_restart_with_its_generation_and_fresh_sessions() -> None:
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
        > wait 9000
        > restart
        > show
        Stable, generation 1, leader a1 [a1=A b1=B]
        > wait 9000
        > a heartbeat
        a: heartbeat NONE
        > b sync
        b: synced B (consumer/range)
        > b commit t-0=4
        b: committed t-0 NONE
        > wait 9999
        > a heartbeat
        a: heartbeat NONE
        > show
        Stable, generation 1, leader a1 [a1=A b1=B]
        > wait 1
        > show
        PreparingRebalance, generation 1, leader a1 [a1=A]
        > a join
        a: joined generation 2 as a1, consumer/range, leader a1 [a1=m]
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_rebalance_that_was_under_way_is_forgotten_by_a_restart() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > b join v=3
        > show
        PreparingRebalance, generation 1, leader a1 [a1=A b1=]
        > restart
        > show
        Stable, generation 1, leader a1 [a1=A]
        > a heartbeat
        a: heartbeat NONE
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_who_waits_is_sent_away_when_the_partition_moves() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > b join v=3
        > unload
        b: join NOT_COORDINATOR, id b1
        > a heartbeat
        a: heartbeat NOT_COORDINATOR
        > a join
        a: join NOT_COORDINATOR, id a1
        > a sync
        a: sync NOT_COORDINATOR
        > a leave
        a: left NOT_COORDINATOR []
        > a commit t-0=1
        a: committed t-0 NOT_COORDINATOR
        > a fetch
        a: offsets none NOT_COORDINATOR
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_connection_that_dies_takes_an_anonymous_member_with_it() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > b join v=3
        > b drop
        > show
        PreparingRebalance, generation 1, leader a1 [a1=A]
        > a join
        a: joined generation 2 as a1, consumer/range, leader a1 [a1=m]
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_connection_that_dies_leaves_a_member_that_knows_its_id() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > b join
        b: join MEMBER_ID_REQUIRED, id b1
        > b join
        > b drop
        > show
        PreparingRebalance, generation 1, leader a1 [a1=A b1=]
        > a join
        a: joined generation 2 as a1, consumer/range, leader a1 [a1=m b1=m]
        > b join
        b: joined generation 2 as b1, consumer/range, leader a1
        > b sync
        > a sync a=A b=B
        a: synced A (consumer/range)
        b: synced B (consumer/range)
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_heartbeats_are_held_against_the_generation_and_the_members() -> None:
    check(
        """
        > a heartbeat id=nobody
        a: heartbeat UNKNOWN_MEMBER_ID
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a heartbeat
        a: heartbeat NONE
        > a heartbeat generation=0
        a: heartbeat ILLEGAL_GENERATION
        > b heartbeat id=nobody
        b: heartbeat UNKNOWN_MEMBER_ID
        > a sync a=A
        a: synced A (consumer/range)
        > a heartbeat
        a: heartbeat NONE
        > a heartbeat instance=nobody
        a: heartbeat UNKNOWN_MEMBER_ID
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_members_that_do_not_come_back_after_a_restart_of_the_node_are_out() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > restart
        > wait 9999
        > show
        Stable, generation 1, leader a1 [a1=A]
        > wait 1
        > show
        Empty, generation 2, leader None []
        """,
        group_initial_rebalance_delay_ms=0,
    )
