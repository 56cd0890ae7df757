"""Time-outs, expiry, producer ids that are slow to come, and the verifier."""

from __future__ import annotations

from tests.unit.coordinator.txn.world import ID, T0, T1, World
from tidelog.coordinator.txn.records import NO_ID, TransactionRecord, TransactionValue, decode_record, encode_record
from tidelog.coordinator.txn.state import TransactionState
from tidelog.coordinator.txn.transaction import Ended, ProducerName
from tidelog.protocol.errors import ErrorCode

HOUR_MS = 3_600_000


def test_a_transaction_that_runs_out_of_time_is_aborted_and_its_producer_fenced() -> None:
    world = World()
    producer = world.producer(timeout_ms=1_000)
    world.add(producer)
    world.advance(900)
    assert world.state == "Ongoing"
    world.advance(200)
    assert world.state == "CompleteAbort"
    assert world.add(producer) == [ErrorCode.PRODUCER_FENCED]
    assert world.coordinator.counters.timed_out == 1
    assert [(marker.committed, at) for marker, at in world.markers.written] == [(False, T0)]


def test_each_transaction_has_its_own_time() -> None:
    world = World()
    producer = world.producer(timeout_ms=1_000)
    for _ in range(5):
        world.add(producer)
        world.advance(700)
        assert world.end(producer)[0].code is ErrorCode.NONE
    world.advance(10_000)
    assert world.state == "CompleteCommit"


def test_partitions_that_come_later_do_not_prolong_it() -> None:
    world = World()
    producer = world.producer(timeout_ms=1_000)
    world.add(producer, T0)
    world.advance(800)
    world.add(producer, T1)
    world.advance(400)
    assert world.state == "CompleteAbort"


def test_time_goes_on_over_a_load() -> None:
    world = World()
    producer = world.producer(timeout_ms=1_000)
    world.add(producer)
    world.advance(500)
    world.restart()
    world.advance(450)
    assert world.state == "Ongoing"
    world.advance(200)
    assert world.state == "CompleteAbort"


def test_an_abort_by_the_clock_that_cannot_be_written_is_tried_again() -> None:
    world = World()
    producer = world.producer(timeout_ms=1_000)
    world.add(producer)
    world.log.failure = ErrorCode.KAFKA_STORAGE_ERROR
    world.advance(3_000)
    assert world.state == "Ongoing"
    world.log.failure = None
    world.advance(200)
    assert world.state == "CompleteAbort"


def test_ids_that_are_not_used_are_forgotten() -> None:
    world = World(transactional_id_expiration_ms=10 * HOUR_MS)
    world.producer()
    world.advance(9 * HOUR_MS)
    world.producer()
    world.advance(9 * HOUR_MS)
    assert ID in world.machine.transactions
    world.advance(3 * HOUR_MS)
    assert ID not in world.machine.transactions
    assert world.log.records()[-1][1] is None
    world.restart()
    assert ID not in world.machine.transactions
    assert world.init(ProducerName(101, 1))[0].code is ErrorCode.NONE, "one that comes back begins anew (KIP-360)"


def test_open_ones_are_kept_until_they_end() -> None:
    world = World(transactional_id_expiration_ms=10_000, remove_expired_interval_ms=1_000)
    producer = world.producer(timeout_ms=60_000)
    world.add(producer)
    world.advance(30_000)
    assert world.state == "Ongoing"
    assert world.end(producer)[0].code is ErrorCode.NONE
    world.advance(9_000)
    assert world.state == "CompleteCommit"
    world.advance(15_000)
    assert ID not in world.machine.transactions


def test_thousands_that_are_due_at_once_come_in_slices() -> None:
    world = World()
    for number in range(1_000):
        answer = world.init(timeout_ms=1_000, transactional_id=f"id-{number}")[0]
        producer = ProducerName(answer.producer_id, answer.producer_epoch)
        world.coordinator.add_partitions(f"id-{number}", producer, [T0], 0, None, lambda code: None)
    world.clock.ms += 2_000
    world.coordinator.runtime.poll()
    open_ones = world.machine.states[TransactionState.ONGOING]
    assert open_ones == 800
    world.settle()
    assert world.machine.states == {TransactionState.COMPLETE_ABORT: 1_000} | dict.fromkeys(
        (state for state in world.machine.states if state is not TransactionState.COMPLETE_ABORT), 0
    )


def test_a_producer_id_may_take_its_time() -> None:
    world = World()
    world.ids.holds = True
    first, second = world.init(), world.init()
    assert (first, second) == ([], [])
    for number, done in enumerate(world.ids.waiting):
        done(500 + number)
    assert first == [Ended(ErrorCode.NONE, 500, 0)]
    assert second == [Ended(ErrorCode.NONE, 500, 1)], "the first has the id, the second the next epoch"


def test_without_producer_ids_it_is_to_be_asked_again() -> None:
    world = World()
    world.ids.is_empty = True
    assert world.init()[0].code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.machine.transactions == {}


def test_the_verifier_of_version_1_finds_only_what_was_added() -> None:
    world = World()
    producer = world.producer()
    assert world.verify(producer, T0) == [{T0: ErrorCode.TRANSACTION_ABORTABLE}]
    world.add(producer, T0)
    assert world.verify(producer, T0, T1) == [{T0: ErrorCode.NONE, T1: ErrorCode.TRANSACTION_ABORTABLE}]
    world.end(producer)
    assert world.verify(producer, T0) == [{T0: ErrorCode.TRANSACTION_ABORTABLE}]
    world.producer()
    assert world.verify(producer, T0) == [{T0: ErrorCode.INVALID_PRODUCER_EPOCH}]
    assert world.verify(ProducerName(7, 0), T0) == [{T0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}]


def test_the_verifier_of_version_2_begins_a_transaction_when_that_is_committed() -> None:
    world = World()
    producer = world.producer()
    world.log.holds = True
    done = world.verify(producer, T0, T1, add=True)
    assert done == []
    world.log.commit()
    assert done == [{T0: ErrorCode.NONE, T1: ErrorCode.NONE}]
    assert world.state == "Ongoing"
    assert world.value().client_version == 2


def test_records_come_back_as_they_were() -> None:
    value = TransactionValue(
        producer_id=7,
        producer_epoch=3,
        timeout_ms=60_000,
        state=TransactionState.PREPARE_COMMIT,
        partitions=frozenset({("a", 1), ("a", 0), ("b", 5)}),
        update_ms=12,
        start_ms=11,
        previous_producer_id=6,
        next_producer_id=9,
        client_version=2,
    )
    for record in (
        TransactionRecord("x", value),
        TransactionRecord("x", value._replace(next_producer_id=NO_ID, client_version=0)),
        TransactionRecord("x", None),
    ):
        key, stored = encode_record(record)
        assert decode_record(key, stored) == record
