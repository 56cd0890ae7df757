"""Produce in a transaction: who is asked, what is refused with which code, and that order is kept while one waits."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from tests.unit.broker.transacting import FakeVerifier, batch, end, outcome, partition_of, produce
from tests.unit.broker.virtual import Peer, on_node
from tidelog.broker.dispatch import Dispatch
from tidelog.broker.transactional_produce import refusal
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.testing.simulation import SimulatedWorld

OK = ErrorCode.NONE


async def start(world: SimulatedWorld, peer: Peer, partitions: int = 1) -> FakeVerifier:
    assert world.node is not None
    await peer.create_topic("t", partitions)
    return FakeVerifier(world.node)


def send(peer: Peer, request: ProduceRequest, version: int = 11) -> list[tuple[ErrorCode, int]]:
    peer.send(request, version)
    return outcome(peer.receive(ProduceResponse))


async def only_the_first_batch_of_a_transaction_is_asked_for(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    verifier = await start(world, peer)
    for sequence in range(3):
        assert send(peer, produce(batch(sequence=sequence))) == [(OK, sequence)]
    assert [(one.transactional_id, one.producer_id, one.partitions) for one in verifier.asked] == [
        ("id", 5, (("t", 0),))
    ]
    assert end(world.node, commit=True) == [OK]
    assert send(peer, produce(batch(sequence=3))) == [(OK, 4)]
    assert len(verifier.asked) == 2


async def version_12_adds_the_partitions(world: SimulatedWorld, peer: Peer) -> None:
    verifier = await start(world, peer, 2)
    send(peer, produce(batch(), batch()), 11)
    send(peer, produce(batch(6), batch(6)), 12)
    assert [(one.add, one.partitions) for one in verifier.asked] == [
        (False, (("t", 0), ("t", 1))),
        (True, (("t", 0), ("t", 1))),
    ]


async def what_is_not_verified_is_not_written(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    verifier = await start(world, peer)
    verifier.code = ErrorCode.TRANSACTION_ABORTABLE
    assert send(peer, produce(batch()), 10) == [(ErrorCode.INVALID_TXN_STATE, -1)]
    assert send(peer, produce(batch()), 11) == [(ErrorCode.TRANSACTION_ABORTABLE, -1)]
    assert partition_of(world.node).log.log_end_offset == 0


async def without_a_coordinator_clients_try_again(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    await peer.create_topic("t")
    world.node.services.transactions = None
    assert send(peer, produce(batch())) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]


async def without_a_transactional_id_all_is_refused(world: SimulatedWorld, peer: Peer) -> None:
    verifier = await start(world, peer, 2)
    plain = batch(7, attributes=0)
    asked = produce(plain, batch(), transactional_id=None)
    assert send(peer, asked) == [(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)] * 2
    assert not verifier.asked


async def two_producers_in_one_request_are_refused(world: SimulatedWorld, peer: Peer) -> None:
    verifier = await start(world, peer, 2)
    assert send(peer, produce(batch(5), batch(6))) == [(ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)] * 2
    assert not verifier.asked


async def a_transactional_batch_needs_a_producer(world: SimulatedWorld, peer: Peer) -> None:
    await start(world, peer)
    assert send(peer, produce(batch(-1, -1, -1))) == [(ErrorCode.INVALID_RECORD, -1)]


async def an_old_epoch_is_fenced(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    await start(world, peer)
    assert send(peer, produce(batch(epoch=1))) == [(OK, 0)]
    assert send(peer, produce(batch(epoch=0, sequence=1))) == [(ErrorCode.INVALID_PRODUCER_EPOCH, -1)]
    end(world.node, commit=True, epoch=2, version=2)
    assert send(peer, produce(batch(epoch=1, sequence=1)), 12) == [(ErrorCode.INVALID_PRODUCER_EPOCH, -1)]
    assert send(peer, produce(batch(epoch=2, sequence=1)), 12) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    assert send(peer, produce(batch(epoch=2, sequence=0)), 12) == [(OK, 2)]


async def requests_behind_one_that_waits_keep_their_order(world: SimulatedWorld, peer: Peer) -> None:
    verifier = await start(world, peer, 2)
    verifier.waits = True
    other = Peer(peer_node(world))
    for sequence in range(3):
        peer.send(produce(batch(sequence=sequence)), 12)
    assert not peer.has_answer and len(verifier.asked) == 1
    # Another producer is not held up, and neither is one that is in no transaction.
    assert send(other, produce(batch(9, attributes=0), transactional_id=None)) == [(OK, 0)]
    verifier.answer()
    assert [outcome(peer.receive(ProduceResponse)) for _ in range(3)] == [[(OK, 1)], [(OK, 2)], [(OK, 3)]]
    assert len(verifier.asked) == 1


async def a_retry_on_a_new_connection_waits_behind_the_first(world: SimulatedWorld, peer: Peer) -> None:
    verifier = await start(world, peer)
    verifier.waits = True
    peer.send(produce(batch()), 12)
    peer.lose()
    again = Peer(peer_node(world))
    again.send(produce(batch()), 12)
    again.send(produce(batch(sequence=1)), 12)
    verifier.answer()
    assert [outcome(again.receive(ProduceResponse)) for _ in range(2)] == [[(OK, 0)], [(OK, 1)]]


async def who_waits_behind_a_refusal_is_asked_for_again(world: SimulatedWorld, peer: Peer) -> None:
    verifier = await start(world, peer)
    verifier.waits, verifier.code = True, ErrorCode.CONCURRENT_TRANSACTIONS
    peer.send(produce(batch()), 12)
    peer.send(produce(batch(sequence=1)), 12)
    verifier.code = OK
    verifier.answer()
    assert outcome(peer.receive(ProduceResponse)) == [(ErrorCode.CONCURRENT_TRANSACTIONS, -1)]
    assert len(verifier.asked) == 2
    verifier.answer()
    # Version 2 begins with sequence 0: had the second been taken, the first could never follow.
    assert outcome(peer.receive(ProduceResponse)) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]


async def one_behind_that_is_verified_at_once_is_written_once(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    verifier = await start(world, peer, 2)
    verifier.waits = True
    peer.send(produce(batch()), 12)
    for sequence in range(2):
        peer.send(produce(batch(sequence=sequence), first_partition=1), 12)
    verifier.waits = False
    verifier.answer()
    assert [outcome(peer.receive(ProduceResponse)) for _ in range(3)] == [[(OK, 0)], [(OK, 0)], [(OK, 1)]]
    assert partition_of(world.node, 1).log.log_end_offset == 2 and len(verifier.asked) == 2


async def a_marker_that_comes_before_the_answer_wins(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    verifier = await start(world, peer)
    verifier.waits = True
    peer.send(produce(batch()), 11)
    assert end(world.node, commit=False) == [OK]
    verifier.answer()
    assert outcome(peer.receive(ProduceResponse)) == [(ErrorCode.INVALID_TXN_STATE, -1)]
    assert partition_of(world.node).last_stable_offset == 1


async def what_waits_is_counted_and_bounded(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    verifier = await start(world, peer)
    verifier.waits = True
    parked = world.node.services.ledger.parked_bytes
    peer.send(produce(batch()), 12)
    assert parked.used == len(batch())
    limit, parked.limit = parked.limit, 1
    other = Peer(peer_node(world))
    assert send(other, produce(batch(6)), 12) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    parked.limit = limit
    verifier.answer()
    assert parked.used == 0
    assert outcome(peer.receive(ProduceResponse)) == [(OK, 0)]


async def a_coordinator_that_never_answers_holds_nobody_for_ever(world: SimulatedWorld, peer: Peer) -> None:
    verifier = await start(world, peer)
    verifier.waits = True
    peer.send(produce(batch()), 11)
    peer.send(produce(batch(sequence=1)), 11)
    await asyncio.sleep(31)
    assert outcome(peer.receive(ProduceResponse)) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    assert len(verifier.asked) == 2 and not peer.has_answer
    verifier.answer()  # the first too late, the second in time: it must not come before the first
    assert outcome(peer.receive(ProduceResponse)) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]


async def acks_0_waits_too_and_is_never_answered(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    verifier = await start(world, peer)
    verifier.waits = True
    peer.send(produce(batch(), acks=0), 12)
    verifier.answer()
    assert partition_of(world.node).log.log_end_offset == 1
    assert not peer.has_answer and not peer.transport.closed


async def a_transaction_goes_on_the_short_way(world: SimulatedWorld, peer: Peer) -> None:
    """Until it waits or ends."""
    assert world.node is not None
    verifier = await start(world, peer, 2)
    long_ways: list[int] = []
    handle_new = Dispatch._handle_new

    def count(self: Dispatch, *arguments: object) -> object:
        long_ways.append(1)
        return handle_new(self, *arguments)  # type: ignore[arg-type]

    with patch.object(Dispatch, "_handle_new", count):
        for sequence in range(10):
            assert send(peer, produce(batch(sequence=sequence)), 12) == [(OK, sequence)]
        assert len(long_ways) == 1
        end(world.node, commit=True, epoch=1, version=2)
        assert send(peer, produce(batch(epoch=1)), 12) == [(OK, 11)]
        assert len(long_ways) == 2 and len(verifier.asked) == 2
        # Partition 1 waits with both; a batch for partition 0, where the transaction is open, must not overtake it.
        verifier.waits = True
        peer.send(produce(batch(epoch=1, sequence=1), batch(epoch=1)), 12)
        peer.send(produce(batch(epoch=1, sequence=2)), 12)
        verifier.answer()
        assert outcome(peer.receive(ProduceResponse)) == [(OK, 12), (OK, 0)]
        assert outcome(peer.receive(ProduceResponse)) == [(OK, 13)]


async def synced_answers_come_in_the_place_that_was_kept(world: SimulatedWorld, peer: Peer) -> None:
    verifier = await start(world, peer)
    verifier.waits = True
    peer.send(produce(batch()), 12)
    peer.send(produce(batch(sequence=1), acks=1), 12)
    verifier.answer()
    assert not peer.has_answer
    answer = await peer.call(produce(batch(sequence=2)), 12, ProduceResponse)
    assert [outcome(answer), outcome(peer.receive(ProduceResponse))] == [[(OK, 0)], [(OK, 1)]]


def peer_node(world: SimulatedWorld):  # type: ignore[no-untyped-def]
    assert world.node is not None
    return world.node


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 9, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NOT_COORDINATOR, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_what_each_version_is_told(code: ErrorCode, version: int, told: ErrorCode) -> None:
    assert refusal(code, version).error_code is told


test_only_the_first = on_node(only_the_first_batch_of_a_transaction_is_asked_for)
test_version_12 = on_node(version_12_adds_the_partitions)
test_not_verified = on_node(what_is_not_verified_is_not_written)
test_no_coordinator = on_node(without_a_coordinator_clients_try_again)
test_no_id = on_node(without_a_transactional_id_all_is_refused)
test_two_producers = on_node(two_producers_in_one_request_are_refused)
test_no_producer = on_node(a_transactional_batch_needs_a_producer)
test_epochs = on_node(an_old_epoch_is_fenced)
test_order = on_node(requests_behind_one_that_waits_keep_their_order)
test_new_connection = on_node(a_retry_on_a_new_connection_waits_behind_the_first)
test_behind_a_refusal = on_node(who_waits_behind_a_refusal_is_asked_for_again)
test_written_once = on_node(one_behind_that_is_verified_at_once_is_written_once)
test_marker_wins = on_node(a_marker_that_comes_before_the_answer_wins)
test_bound = on_node(what_waits_is_counted_and_bounded)
test_no_answer = on_node(a_coordinator_that_never_answers_holds_nobody_for_ever)
test_acks_0 = on_node(acks_0_waits_too_and_is_never_answered)
test_short_way = on_node(a_transaction_goes_on_the_short_way)
test_synced = on_node(synced_answers_come_in_the_place_that_was_kept, tidelog_sync_mode="synced")
