"""Static members (KIP-345), scene by scene."""

from __future__ import annotations

from tests.unit.coordinator.group.script import check


def test_a_static_member_is_not_asked_to_come_back_with_an_id() -> None:
    check(
        """
        > a join instance=i
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=m]
        > a sync a=A instance=i
        a: synced A (consumer/range)
        > show
        Stable, generation 1, leader i1 [i1=A]
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_static_follower_that_restarts_keeps_its_assignment_without_a_rebalance() -> None:
    check(
        """
        > a join instance=i
        > b join instance=j
        > wait 6000
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=m j1/j=m]
        b: joined generation 1 as j1, consumer/range, leader i1
        > a sync a=A b=B instance=i
        a: synced A (consumer/range)
        > b sync instance=j
        b: synced B (consumer/range)
        > c join instance=j
        c: joined generation 1 as j2, consumer/range, leader i1
        > c sync instance=j
        c: synced B (consumer/range)
        > show
        Stable, generation 1, leader i1 [i1=A j2=B]
        > a heartbeat instance=i
        a: heartbeat NONE
        > b heartbeat instance=j
        b: heartbeat FENCED_INSTANCE_ID
        > log
        GroupWritten /None generation 0 None []
        GroupWritten consumer/range generation 1 i1 [i1=A j1=B]
        GroupWritten consumer/range generation 1 i1 [i1=A j2=B]
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_static_leader_that_restarts_is_told_to_skip_the_assignment() -> None:
    check(
        """
        > a join instance=i
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=m]
        > a sync a=A instance=i
        a: synced A (consumer/range)
        > b join instance=i
        b: joined generation 1 as i2, consumer/range, leader i2 [i2/i=m], skip assignment
        > b sync instance=i
        b: synced A (consumer/range)
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_before_version_9_a_static_leader_that_restarts_does_not_learn_that_it_leads() -> None:
    check(
        """
        > a join instance=i
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=m]
        > a sync a=A instance=i
        a: synced A (consumer/range)
        > b join instance=i v=8
        b: joined generation 1 as i2, consumer/range, leader i1
        > b sync instance=i
        b: synced A (consumer/range)
        > show
        Stable, generation 1, leader i2 [i2=A]
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_the_old_id_of_a_static_member_is_fenced_everywhere() -> None:
    check(
        """
        > a join instance=i
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=m]
        > a sync a=A instance=i
        a: synced A (consumer/range)
        > b join instance=i
        b: joined generation 1 as i2, consumer/range, leader i2 [i2/i=m], skip assignment
        > a heartbeat instance=i
        a: heartbeat FENCED_INSTANCE_ID
        > a sync instance=i
        a: sync FENCED_INSTANCE_ID
        > a join instance=i
        a: join FENCED_INSTANCE_ID, id i1
        > a commit t-0=1 instance=i
        a: committed t-0 FENCED_INSTANCE_ID
        > a leave instance=i
        a: left NONE [FENCED_INSTANCE_ID]
        > a heartbeat
        a: heartbeat UNKNOWN_MEMBER_ID
        > show
        Stable, generation 1, leader i2 [i2=A]
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_static_member_that_waits_is_fenced_by_its_successor() -> None:
    check(
        """
        > a join instance=i
        > b join instance=i
        a: join FENCED_INSTANCE_ID, id i1
        > wait 6000
        b: joined generation 1 as i2, consumer/range, leader i2 [i2/i=m]
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_static_member_that_waits_for_its_sync_is_fenced_and_the_group_rebalances() -> None:
    check(
        """
        > a join instance=i
        > b join instance=j
        > wait 6000
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=m j1/j=m]
        b: joined generation 1 as j1, consumer/range, leader i1
        > b sync instance=j
        > c join instance=j
        b: sync FENCED_INSTANCE_ID
        > show
        PreparingRebalance, generation 1, leader i1 [i1= j2=]
        > a heartbeat instance=i
        a: heartbeat REBALANCE_IN_PROGRESS
        > a join instance=i
        a: joined generation 2 as i1, consumer/range, leader i1 [i1/i=m j2/j=m]
        c: joined generation 2 as j2, consumer/range, leader i1
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_static_member_that_restarts_with_another_protocol_starts_a_rebalance() -> None:
    check(
        """
        > a join instance=i protocols=range:x,sticky:y
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=x]
        > a sync a=A instance=i
        a: synced A (consumer/range)
        > b join instance=i protocols=sticky:y
        b: joined generation 2 as i2, consumer/sticky, leader i2 [i2/i=y]
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_static_member_that_restarts_with_other_metadata_of_the_same_protocol_does_not() -> None:
    check(
        """
        > a join instance=i protocols=range:x
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=x]
        > a sync a=A instance=i
        a: synced A (consumer/range)
        > b join instance=i protocols=range:changed
        b: joined generation 1 as i2, consumer/range, leader i2 [i2/i=changed], skip assignment
        > show
        Stable, generation 1, leader i2 [i2=A]
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_static_member_that_is_absent_stays_through_the_rebalance_time_out() -> None:
    check(
        """
        > a join instance=i rebalance=15000 session=60000
        > b join instance=j rebalance=15000 session=60000
        > wait 6000
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=m j1/j=m]
        b: joined generation 1 as j1, consumer/range, leader i1
        > a sync a=A b=B instance=i
        a: synced A (consumer/range)
        > b sync instance=j
        b: synced B (consumer/range)
        > b join instance=j protocols=range:changed rebalance=15000 session=60000
        > wait 15000
        b: joined generation 2 as j1, consumer/range, leader j1 [i1/i=m j1/j=changed]
        > show
        CompletingRebalance, generation 2, leader j1 [i1=A j1=B]
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_with_only_absent_static_members_left_the_group_waits_for_their_sessions() -> None:
    check(
        """
        > a join instance=i rebalance=15000 session=40000
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=m]
        > a sync a=A instance=i
        a: synced A (consumer/range)
        > b join rebalance=15000 session=40000
        b: join MEMBER_ID_REQUIRED, id b1
        > b join rebalance=15000 session=40000
        > b leave
        b: join UNKNOWN_MEMBER_ID
        b: left NONE [NONE]
        > wait 15000
        > show
        PreparingRebalance, generation 1, leader i1 [i1=A]
        > wait 30000
        > show
        Empty, generation 2, leader None []
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_an_administrator_removes_a_static_member_by_its_name() -> None:
    check(
        """
        > a join instance=i
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=m]
        > a sync a=A instance=i
        a: synced A (consumer/range)
        > z leave id= instance=nobody
        z: left NONE [UNKNOWN_MEMBER_ID]
        > z leave id= instance=i
        z: left NONE [NONE]
        > show
        Empty, generation 2, leader None []
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_restart_that_cannot_be_stored_leaves_the_old_static_member_in_place() -> None:
    check(
        """
        > a join instance=i
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=m]
        > a sync a=A instance=i
        a: synced A (consumer/range)
        > fail NOT_LEADER_OR_FOLLOWER
        > b join instance=i
        b: join NOT_COORDINATOR
        > mend
        > show
        Stable, generation 1, leader i1 [i1=A]
        > a heartbeat instance=i
        a: heartbeat NONE
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_static_members_and_their_instance_ids_survive_a_restart_of_the_node() -> None:
    check(
        """
        > a join instance=i
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=m]
        > a sync a=A instance=i
        a: synced A (consumer/range)
        > restart
        > b join instance=i
        b: joined generation 1 as i2, consumer/range, leader i2 [i2/i=m], skip assignment
        > a heartbeat instance=i
        a: heartbeat FENCED_INSTANCE_ID
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_static_member_that_restarts_before_its_first_sync_is_not_waited_for_twice() -> None:
    check(
        """
        > a join instance=i rebalance=15000 session=60000
        > b join instance=j rebalance=15000 session=60000
        > wait 6000
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=m j1/j=m]
        b: joined generation 1 as j1, consumer/range, leader i1
        > a sync a=A b=B instance=i
        a: synced A (consumer/range)
        > c join instance=j rebalance=15000 session=60000
        c: joined generation 1 as j2, consumer/range, leader i1
        > c sync instance=j
        c: synced B (consumer/range)
        > wait 15000
        > show
        Stable, generation 1, leader i1 [i1=A j2=B]
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_static_member_that_restarts_and_is_silent_is_out_after_its_session() -> None:
    check(
        """
        > a join instance=i
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=m]
        > a sync a=A instance=i
        a: synced A (consumer/range)
        > wait 9000
        > b join instance=i
        b: joined generation 1 as i2, consumer/range, leader i2 [i2/i=m], skip assignment
        > wait 9999
        > show
        Stable, generation 1, leader i2 [i2=A]
        > wait 1
        > show
        Empty, generation 2, leader None []
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_two_restarts_in_a_row_that_are_lost_leave_the_last_but_one() -> None:
    check(
        """
        > a join instance=i
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=m]
        > a sync a=A instance=i
        a: synced A (consumer/range)
        > hold
        > b join instance=i protocols=range:b
        > c join instance=i protocols=range:c
        b: join FENCED_INSTANCE_ID, id i2
        > lose
        c: join NOT_COORDINATOR
        > show
        Stable, generation 1, leader i2 [i2=A]
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_restart_that_cannot_be_stored_leaves_the_metadata_as_it_was() -> None:
    check(
        """
        > a join instance=i
        > b join instance=j
        > wait 6000
        a: joined generation 1 as i1, consumer/range, leader i1 [i1/i=m j1/j=m]
        b: joined generation 1 as j1, consumer/range, leader i1
        > a sync a=A b=B instance=i
        a: synced A (consumer/range)
        > b sync instance=j
        b: synced B (consumer/range)
        > fail NOT_ENOUGH_REPLICAS
        > c join instance=j protocols=range:changed
        c: join COORDINATOR_NOT_AVAILABLE
        > mend
        > b join instance=j
        b: joined generation 1 as j1, consumer/range, leader i1
        > show
        Stable, generation 1, leader i1 [i1=A j1=B]
        """,
        group_initial_rebalance_delay_ms=3_000,
    )
