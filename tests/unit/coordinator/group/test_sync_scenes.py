"""SyncGroup, scene by scene."""

from __future__ import annotations

from tests.unit.coordinator.group.script import check


def test_everybody_gets_the_leaders_assignment_when_it_is_committed() -> None:
    check(
        """
        > a join v=3
        > b join v=3
        > wait 6000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        > b sync
        > hold
        > a sync a=A b=B
        > show
        CompletingRebalance, generation 1, leader a1 [a1= b1=]
        > commit
        a: synced A (consumer/range)
        b: synced B (consumer/range)
        > show
        Stable, generation 1, leader a1 [a1=A b1=B]
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_whom_the_leader_forgets_gets_nothing() -> None:
    check(
        """
        > a join v=3
        > b join v=3
        > wait 6000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        > b sync
        > a sync a=A nobody=N
        a: synced A (consumer/range)
        b: synced nothing (consumer/range)
        > log
        GroupWritten /None generation 0 None []
        GroupWritten consumer/range generation 1 a1 [a1=A b1=]
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_sync_is_held_against_members_generation_and_protocol() -> None:
    check(
        """
        > a sync id=nobody
        a: sync UNKNOWN_MEMBER_ID
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync id=nobody
        a: sync UNKNOWN_MEMBER_ID
        > a sync generation=7
        a: sync ILLEGAL_GENERATION
        > a sync type=connect
        a: sync INCONSISTENT_GROUP_PROTOCOL
        > a sync protocol=roundrobin
        a: sync INCONSISTENT_GROUP_PROTOCOL
        > a sync a=A
        a: synced A (consumer/range)
        > a sync generation=0
        a: sync ILLEGAL_GENERATION
        > b join v=3
        > a sync
        a: sync REBALANCE_IN_PROGRESS
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_an_assignment_that_cannot_be_stored_is_taken_back_and_the_group_rebalances() -> None:
    check(
        """
        > a join v=3
        > b join v=3
        > wait 6000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        > b sync
        > fail NOT_ENOUGH_REPLICAS
        > a sync a=A b=B
        a: sync COORDINATOR_NOT_AVAILABLE
        b: sync COORDINATOR_NOT_AVAILABLE
        > show
        PreparingRebalance, generation 1, leader a1 [a1= b1=]
        > mend
        > a join
        > b join
        a: joined generation 2 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 2 as b1, consumer/range, leader a1
        > a sync a=A b=B
        a: synced A (consumer/range)
        > b sync
        b: synced B (consumer/range)
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_an_assignment_too_large_to_store_is_an_unknown_server_error() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > fail RECORD_LIST_TOO_LARGE
        > a sync a=A
        a: sync UNKNOWN_SERVER_ERROR
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_an_assignment_that_is_not_committed_in_time_is_taken_back() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > hold
        > a sync a=A
        > wait 4999
        > wait 1
        a: sync COORDINATOR_NOT_AVAILABLE
        > show
        PreparingRebalance, generation 1, leader a1 [a1=]
        > commit
        > show
        PreparingRebalance, generation 1, leader a1 [a1=]
        > a join
        a: joined generation 2 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=B
        a: synced B (consumer/range)
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_rebalance_that_starts_while_the_assignment_is_stored_makes_it_void() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > hold
        > a sync a=A
        > b join v=3
        a: sync REBALANCE_IN_PROGRESS
        > commit
        > show
        PreparingRebalance, generation 1, leader a1 [a1= b1=]
        > a join
        a: joined generation 2 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 2 as b1, consumer/range, leader a1
        > a sync a=A2 b=B2
        a: synced A2 (consumer/range)
        > b sync
        b: synced B2 (consumer/range)
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_sync_that_is_repeated_gets_the_second_answer() -> None:
    check(
        """
        > a join v=3
        > b join v=3
        > wait 6000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        > b sync
        > b sync
        b: sync REBALANCE_IN_PROGRESS
        > a sync a=A b=B
        a: synced A (consumer/range)
        b: synced B (consumer/range)
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_a_group_that_cannot_be_stored_is_not_made() -> None:
    check(
        """
        > fail KAFKA_STORAGE_ERROR
        > a join v=3
        a: join NOT_COORDINATOR, id a1
        > show
        no group
        > mend
        > a join v=3
        a: joined generation 1 as a2, consumer/range, leader a2 [a2=m]
        > show
        CompletingRebalance, generation 1, leader a2 [a2=]
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_member_that_waited_for_its_assignment_longer_than_its_session_must_speak_up_again() -> None:
    check(
        """
        > a join v=3 session=60000
        > b join v=3 session=10000
        > wait 6000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        > b sync
        > wait 14000
        > a sync a=A b=B
        a: synced A (consumer/range)
        b: synced B (consumer/range)
        > wait 9999
        > show
        Stable, generation 1, leader a1 [a1=A b1=B]
        > wait 1
        > show
        PreparingRebalance, generation 1, leader a1 [a1=A]
        """,
        group_initial_rebalance_delay_ms=3_000,
    )


def test_the_session_of_a_late_follower_begins_with_its_sync() -> None:
    """The simulation has found it: put out a session after its join, it believed to own what it had just been given."""
    check(
        """
        > a join v=3
        > b join v=3
        > wait 6000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 1 as b1, consumer/range, leader a1
        > a sync a=A b=B
        a: synced A (consumer/range)
        > wait 8000
        > a heartbeat
        a: heartbeat NONE
        > b sync
        b: synced B (consumer/range)
        > wait 8000
        > a heartbeat
        a: heartbeat NONE
        > show
        Stable, generation 1, leader a1 [a1=A b1=B]
        """,
        group_initial_rebalance_delay_ms=3_000,
    )
