"""What Apache Kafka cannot be asked in a test: epochs that run out, and ends in the middle of things. All other answers
are compared with a running one in tests/scenarios/test_transaction_answers.py."""

from __future__ import annotations

import pytest

from tests.unit.coordinator.txn.world import ID, T0, T1, World
from tidelog.coordinator.txn.records import TransactionRecord
from tidelog.coordinator.txn.transaction import Ended, ProducerName
from tidelog.protocol.errors import ErrorCode

LAST = 32_766


def at_epoch(world: World, epoch: int) -> ProducerName:
    """A producer that has come that far."""
    producer = world.producer()
    record = TransactionRecord(ID, world.value()._replace(producer_epoch=epoch))
    world.log.append([world.machine.encode(record)], world.clock.wall_ms())
    world.restart()
    return ProducerName(producer.id, epoch)


def test_the_last_epoch_of_version_2_moves_on_to_a_new_producer_id() -> None:
    world = World()
    producer = at_epoch(world, LAST)
    world.verify(producer, T0, add=True)
    world.markers.holds = True
    after = world.ended(producer, version=2)
    assert after.epoch == 0
    assert after.id != producer.id
    assert world.value().next_producer_id == after.id
    (waiting,) = [world.verify(after, T1, add=True)]
    assert waiting == [], "it may use the new id before the markers of the old one are written"
    world.markers.holds = False
    world.markers.release()
    assert waiting == [{T1: ErrorCode.NONE}]
    marker, _ = world.markers.written[0]
    assert (marker.producer_id, marker.producer_epoch) == (producer.id, LAST + 1)
    assert (world.value().producer_id, world.value().producer_epoch) == after


def test_the_end_before_the_roll_over_may_be_asked_again() -> None:
    world = World()
    producer = at_epoch(world, LAST)
    world.verify(producer, T0, add=True)
    after = world.ended(producer, version=2)
    for _ in range(2):
        assert world.end(producer, version=2) == [Ended(ErrorCode.NONE, after.id, 0)]
        world.restart()


def test_init_moves_on_when_epochs_have_run_out() -> None:
    world = World()
    producer = at_epoch(world, LAST)
    after = world.producer(expected=producer)
    assert after.epoch == 0
    assert after.id != producer.id
    assert world.init(producer)[0] == Ended(ErrorCode.NONE, after.id, 0), "asked again"
    assert world.add(producer) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize("version", [0, 2])
def test_the_epoch_of_a_last_fence_belongs_to_nobody(version: int) -> None:
    world = World()
    producer = at_epoch(world, LAST)
    world.add(producer, version=version)
    assert world.init()[0].code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.value().producer_epoch == LAST + 1
    for name in (producer, ProducerName(producer.id, LAST + 1)):
        assert world.add(name, version=version) == [ErrorCode.PRODUCER_FENCED]
        assert world.end(name, False, version=version)[0].code is ErrorCode.PRODUCER_FENCED
    after = world.init(producer)[0]
    assert (after.code, after.producer_epoch) == (ErrorCode.NONE, 0)
    assert after.producer_id != producer.id
    assert world.init(producer)[0] == after, "asked again"


def test_a_commit_behind_an_abort_by_the_clock_is_fenced() -> None:
    """KAFKA-20785: INVALID_TXN_STATE would end the client for good."""
    world = World()
    producer = world.producer(timeout_ms=1_000)
    world.verify(producer, T0, add=True)
    world.advance(2_000)
    assert world.state == "CompleteAbort"
    assert world.end(producer, True, version=2)[0].code is ErrorCode.PRODUCER_FENCED
    assert world.end(producer, True, version=0)[0].code is ErrorCode.PRODUCER_FENCED
    assert world.end(producer, False, version=2)[0] == Ended(ErrorCode.NONE, producer.id, 1)


def test_the_answer_leaves_when_the_decision_is_committed_and_not_before() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.log.holds = True
    answer = world.end(producer)
    assert answer == []
    assert world.markers.sent == 0, "no marker of a decision that a power cut could take back"
    world.log.commit()
    assert answer[0].code is ErrorCode.NONE
    assert [at for _, at in world.markers.written] == [T0]
    assert world.state == "CompleteCommit"


def test_a_decision_that_cannot_be_written_changes_nothing() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.log.failure = ErrorCode.KAFKA_STORAGE_ERROR
    assert world.end(producer)[0].code is ErrorCode.NOT_COORDINATOR
    assert world.state == "Ongoing"
    assert world.markers.sent == 0
    world.log.failure = None
    assert world.end(producer)[0].code is ErrorCode.NONE


def test_a_decision_that_is_committed_late_is_carried_out_all_the_same() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.log.holds = True
    answer = world.end(producer)
    world.advance(6_000)
    assert answer[0].code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.markers.sent == 0
    world.log.commit()
    world.advance(6_000)
    assert world.state == "CompleteCommit"
    assert world.end(producer)[0].code is ErrorCode.NONE


def test_markers_are_sent_again_to_those_that_have_none() -> None:
    world = World()
    producer = world.producer()
    world.add(producer, T0, T1)
    world.markers.failures[T1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.end(producer)
    assert world.state == "PrepareCommit"
    world.advance(1_000)
    assert world.state == "PrepareCommit"
    world.markers.failures.clear()
    world.advance(5_000)
    assert world.state == "CompleteCommit"
    assert [at for _, at in world.markers.written] == [T0, T1]


def test_a_partition_that_is_deleted_needs_no_marker() -> None:
    world = World()
    producer = world.producer()
    world.add(producer, T0, T1)
    world.markers.failures[T1] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.end(producer)
    assert world.state == "CompleteCommit"


def test_markers_of_which_nothing_is_heard_are_sent_again() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.markers.holds = True
    world.end(producer)
    world.markers.lose()
    world.markers.holds = False
    world.advance(31_000)
    assert world.state == "CompleteCommit"


def test_a_load_finishes_what_was_decided() -> None:
    for committed in (True, False):
        world = World()
        producer = world.producer()
        world.add(producer, T0, T1)
        world.markers.holds = True
        world.end(producer, committed)
        world.markers.lose()
        world.markers.holds = False
        world.restart()
        assert world.state == ("CompleteCommit" if committed else "CompleteAbort")
        assert {(marker.committed, at) for marker, at in world.markers.written} == {(committed, T0), (committed, T1)}
        assert world.markers.written[0][0].coordinator_epoch == 2


def test_requests_wait_for_markers_and_keep_their_order() -> None:
    """librdkafka sends EndTxn before AddPartitionsToTxn is answered (#4849)."""
    world = World()
    producer = world.producer()
    world.add(producer)
    world.markers.holds = True
    world.end(producer)
    added, ended = world.add(producer, T1), world.end(producer, False)
    assert (added, ended) == ([], [])
    world.markers.holds = False
    world.markers.release()
    assert added == [ErrorCode.NONE]
    assert ended[0].code is ErrorCode.NONE
    assert [(marker.committed, at) for marker, at in world.markers.written] == [(True, T0), (False, T1)]


def test_nobody_waits_for_markers_for_long() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.markers.holds = True
    world.end(producer)
    waiting = world.add(producer)
    many = [world.end(producer) for _ in range(100)]
    assert sum(bool(answer) for answer in many) == 100 - 63, "there is no room for more"
    world.advance(500)
    assert waiting == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert all(answer[0].code is ErrorCode.CONCURRENT_TRANSACTIONS for answer in many)


def test_a_new_leader_sends_those_who_wait_away() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.markers.holds = True
    world.end(producer)
    waiting = world.add(producer)
    world.coordinator.unload(0, world.epoch)
    assert waiting == [ErrorCode.CONCURRENT_TRANSACTIONS]
    world.markers.release()
    assert world.add(producer) == [ErrorCode.NOT_COORDINATOR]
