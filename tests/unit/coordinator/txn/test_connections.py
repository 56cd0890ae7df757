"""A request that was held back on a connection which its client has given up must not touch what came later (the flaw
that Jepsen found in Kafka, for clients of transaction version 1)."""

from __future__ import annotations

from tests.unit.coordinator.txn.world import T0, T1, World
from tidelog.protocol.errors import ErrorCode


def test_a_late_end_does_not_commit_the_next_transaction() -> None:
    world = World()
    producer = world.producer(connection=1)
    world.add(producer, T0, connection=1)
    # EndTxn(commit) is on its way on connection 1; the client gives up, connects anew and asks again.
    assert world.end(producer, connection=2)[0].code is ErrorCode.NONE
    assert world.add(producer, T1, connection=2) == [ErrorCode.NONE]
    assert world.state == "Ongoing"
    assert world.end(producer, connection=1) == []
    assert world.state == "Ongoing"
    assert world.dropped == [1]
    assert [at for _, at in world.markers.written] == [T0]
    assert world.coordinator.counters.stale_requests == 1


def test_a_late_add_does_not_begin_a_transaction() -> None:
    world = World()
    producer = world.producer(connection=1)
    assert world.add(producer, T0, connection=2) == [ErrorCode.NONE]
    world.end(producer, connection=2)
    assert world.add(producer, T0, connection=1) == []
    assert world.state == "CompleteCommit"


def test_a_late_init_does_not_fence_the_producer_that_asked_again() -> None:
    world = World()
    producer = world.producer(connection=2)
    assert world.init(connection=1) == []
    assert world.dropped == [1]
    assert world.add(producer, connection=2) == [ErrorCode.NONE]


def test_who_is_sent_away_and_lives_connects_anew_and_is_heard() -> None:
    world = World()
    first = world.producer(connection=1)
    second = world.producer(connection=2)
    assert world.init(connection=1) == []
    third = world.producer(connection=3)
    assert first.epoch < second.epoch < third.epoch
    assert world.add(third, connection=3) == [ErrorCode.NONE]


def test_a_zombie_with_a_young_connection_does_not_shut_out_its_successor() -> None:
    world = World()
    zombie = world.producer(connection=1)
    producer = world.producer(connection=2)
    assert world.add(zombie, connection=9) == [ErrorCode.PRODUCER_FENCED]
    assert world.end(zombie, connection=9)[0].code is ErrorCode.PRODUCER_FENCED
    assert world.add(producer, connection=2) == [ErrorCode.NONE]
    assert world.dropped == []


def test_version_2_needs_no_such_rule() -> None:
    world = World()
    producer = world.producer(connection=5)
    world.verify(producer, T0, add=True)
    after = world.ended(producer, version=2, connection=5)
    assert world.end(producer, version=2, connection=1)[0].code is ErrorCode.NONE, "the same end, asked again"
    world.verify(after, T0, add=True)
    assert world.end(producer, version=2, connection=1)[0].code is ErrorCode.PRODUCER_FENCED
    assert world.state == "Ongoing"
    assert world.dropped == []


def test_a_restart_forgets_connections() -> None:
    """They are all gone with the process, and numbers begin anew."""
    world = World()
    producer = world.producer(connection=7)
    world.restart()
    assert world.add(producer, connection=1) == [ErrorCode.NONE]
