"""Commits and their age, scene by scene."""

from __future__ import annotations

from tests.unit.coordinator.group.script import check


def test_a_consumer_without_a_group_commits_and_reads_its_offsets() -> None:
    check(
        """
        > a commit t-0=5 u-3=6
        a: committed t-0 NONE u-3 NONE
        > show
        Empty, generation 0, leader None []
        > a fetch
        a: offsets t-0=5 u-3=6
        > restart
        > a fetch
        a: offsets t-0=5 u-3=6
        > show
        Empty, generation 0, leader None []
        """
    )


def test_nobody_outside_may_commit_while_the_group_has_members() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > z commit t-0=5
        z: committed t-0 UNKNOWN_MEMBER_ID
        > z commit t-0=5 id=nobody
        z: committed t-0 UNKNOWN_MEMBER_ID
        > z commit t-0=5 id=nobody generation=1
        z: committed t-0 UNKNOWN_MEMBER_ID
        > a commit t-0=5
        a: committed t-0 NONE
        > a leave
        a: left NONE [NONE]
        > z commit t-0=9
        z: committed t-0 NONE
        > a fetch
        a: offsets t-0=9
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_commit_of_an_old_generation_is_refused() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > a commit t-0=5
        a: committed t-0 NONE
        > a join protocols=range:x
        a: joined generation 2 as a1, consumer/range, leader a1 [a1=x]
        > a sync a=A
        a: synced A (consumer/range)
        > a commit t-0=6 generation=1
        a: committed t-0 ILLEGAL_GENERATION
        > a commit t-0=7 generation=3
        a: committed t-0 ILLEGAL_GENERATION
        > a commit t-0=8
        a: committed t-0 NONE
        > a fetch
        a: offsets t-0=8
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_commits_are_taken_while_members_rejoin_and_not_while_the_assignment_is_awaited() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a commit t-0=1
        a: committed t-0 REBALANCE_IN_PROGRESS
        > a sync a=A
        a: synced A (consumer/range)
        > b join v=3
        > a commit t-0=2
        a: committed t-0 NONE
        > a join
        a: joined generation 2 as a1, consumer/range, leader a1 [a1=m b1=m]
        b: joined generation 2 as b1, consumer/range, leader a1
        > a commit t-0=3
        a: committed t-0 REBALANCE_IN_PROGRESS
        > a fetch
        a: offsets t-0=2
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_commit_to_a_group_that_is_not_there_tells_newer_clients_so() -> None:
    check(
        """
        > a commit t-0=1 generation=3 id=a v=8
        a: committed t-0 ILLEGAL_GENERATION
        > a commit t-0=1 generation=3 id=a v=9
        a: committed t-0 GROUP_ID_NOT_FOUND
        > show
        no group
        """
    )


def test_topics_that_are_not_there_are_refused_whatever_the_generation() -> None:
    check(
        """
        > a commit x-0=1 generation=3 id=a
        a: committed x-0 UNKNOWN_TOPIC_OR_PARTITION
        > a commit x-0=1 t-4=2 t-0=3
        a: committed x-0 UNKNOWN_TOPIC_OR_PARTITION t-4 UNKNOWN_TOPIC_OR_PARTITION t-0 NONE
        > a fetch
        a: offsets t-0=3
        """
    )


def test_offsets_are_read_only_when_they_are_committed() -> None:
    check(
        """
        > a commit t-0=1
        a: committed t-0 NONE
        > hold
        > a commit t-0=2
        > a fetch
        > wait 100
        > commit
        a: committed t-0 NONE
        a: offsets t-0=2
        """
    )


def test_a_commit_that_is_not_committed_in_time_is_refused() -> None:
    check(
        """
        > hold
        > a commit t-0=2
        > wait 5000
        a: committed t-0 COORDINATOR_NOT_AVAILABLE
        > commit
        > a fetch
        a: offsets t-0=2
        """
    )


def test_a_commit_that_cannot_be_appended_changes_nothing() -> None:
    check(
        """
        > a commit t-0=1
        a: committed t-0 NONE
        > fail RECORD_LIST_TOO_LARGE
        > a commit t-0=2
        a: committed t-0 INVALID_COMMIT_OFFSET_SIZE
        > fail KAFKA_STORAGE_ERROR
        > a commit t-0=3
        a: committed t-0 NOT_COORDINATOR
        > fail NOT_ENOUGH_REPLICAS
        > a commit t-0=4
        a: committed t-0 COORDINATOR_NOT_AVAILABLE
        > mend
        > a fetch
        a: offsets t-0=1
        """
    )


def test_offsets_of_a_simple_consumer_expire_after_their_last_commit() -> None:
    check(
        """
        > a commit t-0=1
        a: committed t-0 NONE
        > wait 1800000
        > a commit t-1=1
        a: committed t-1 NONE
        > wait 1799999
        > a fetch
        a: offsets t-0=1 t-1=1
        > wait 600000
        > a fetch
        a: offsets t-1=1
        > show
        Empty, generation 0, leader None []
        > wait 1800000
        > a fetch
        a: offsets none
        > show
        no group
        > log
        OffsetCommitted t-0=1
        OffsetCommitted t-1=1
        OffsetRemoved t-0
        OffsetRemoved t-1
        GroupRemoved
        """,
        offsets_retention_minutes=60,
        offsets_retention_check_interval_ms=600_000,
    )


def test_offsets_of_an_empty_group_expire_when_it_has_been_empty_for_long() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > a commit t-0=1
        a: committed t-0 NONE
        > a leave
        a: left NONE [NONE]
        > wait 3500000
        > a fetch
        a: offsets t-0=1
        > wait 600000
        > a fetch
        a: offsets none
        > show
        no group
        > restart
        > show
        no group
        """,
        offsets_retention_minutes=60,
        offsets_retention_check_interval_ms=600_000,
        group_initial_rebalance_delay_ms=0,
    )


def test_offsets_of_a_group_with_members_stay() -> None:
    check(
        """
        > a join v=3 session=1800000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > a commit t-0=1
        a: committed t-0 NONE
        > wait 700000
        > a heartbeat
        a: heartbeat NONE
        > wait 700000
        > a fetch
        a: offsets t-0=1
        """,
        offsets_retention_minutes=1,
        offsets_retention_check_interval_ms=600_000,
        group_initial_rebalance_delay_ms=0,
    )


def test_an_empty_group_without_offsets_goes_at_the_next_look() -> None:
    check(
        """
        > a join v=3
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a leave
        a: left NONE [NONE]
        > show
        Empty, generation 2, leader None []
        > wait 600000
        > show
        no group
        """,
        offsets_retention_check_interval_ms=600_000,
        group_initial_rebalance_delay_ms=0,
    )


def test_a_group_that_somebody_is_about_to_join_is_not_cleared_away() -> None:
    check(
        """
        > a join session=1800000
        a: join MEMBER_ID_REQUIRED, id a1
        > wait 600000
        > a join session=1800000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        """,
        offsets_retention_check_interval_ms=600_000,
        group_initial_rebalance_delay_ms=0,
    )


def test_the_age_of_an_empty_groups_offsets_counts_from_when_it_became_empty() -> None:
    check(
        """
        > a join v=3 session=1800000
        a: joined generation 1 as a1, consumer/range, leader a1 [a1=m]
        > a sync a=A
        a: synced A (consumer/range)
        > a commit t-0=1
        a: committed t-0 NONE
        > wait 1700000
        > a heartbeat
        a: heartbeat NONE
        > wait 1700000
        > a heartbeat
        a: heartbeat NONE
        > wait 1000000
        > a leave
        a: left NONE [NONE]
        > wait 600000
        > a fetch
        a: offsets t-0=1
        > wait 3600000
        > a fetch
        a: offsets none
        """,
        offsets_retention_minutes=60,
        offsets_retention_check_interval_ms=600_000,
        group_initial_rebalance_delay_ms=0,
    )
