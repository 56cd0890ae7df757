"""A long list that is encoded in slices has the bytes that it has when it is encoded at once."""

from __future__ import annotations

import pytest

from tests.unit.coordinator.turns import Turns
from tidelog.broker.long_answers import SLICE, encode_in_slices
from tidelog.coordinator.chores import Chores, Work, finish
from tidelog.protocol.codec import encode
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsResponse
from tidelog.protocol.messages.list_transactions import ListTransactionsResponse

COUNTS = [0, 1, 126, 127, 128, SLICE - 1, SLICE, SLICE + 1, 3 * SLICE + 7]


def listed(count: int) -> ListTransactionsResponse:
    states = [
        ListTransactionsResponse.TransactionState(
            transactional_id=f"id-{number}", producer_id=number, transaction_state="Ongoing"
        )
        for number in range(count)
    ]
    return ListTransactionsResponse(throttle_time_ms=3, unknown_state_filters=["x"], transaction_states=states)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("count", COUNTS)
def test_listed_transactions(count: int, version: int) -> None:
    whole = encode(listed(count), version)
    response = listed(count)
    assert finish(encode_in_slices(response, version, "transaction_states")) == whole
    assert response == listed(count)


@pytest.mark.parametrize("count", COUNTS)
def test_described_transactions(count: int) -> None:
    topics = [DescribeTransactionsResponse.TopicData(topic="t", partitions=[0, 1])]
    states = [
        DescribeTransactionsResponse.TransactionState(transactional_id=f"id-{number}", topics=topics)
        for number in range(count)
    ]
    response = DescribeTransactionsResponse(transaction_states=states)
    whole = encode(response, 0)
    assert finish(encode_in_slices(response, 0, "transaction_states")) == whole


def test_a_field_that_is_not_the_last_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        finish(encode_in_slices(listed(3), 0, "unknown_state_filters"))


def test_a_hundred_thousand_entries_take_many_short_turns() -> None:
    encode(listed(1), 2)
    bodies: list[bytes] = []

    def encoding() -> Work[None]:
        bodies.append((yield from encode_in_slices(response, 2, "transaction_states")))

    response, chores, turns = listed(100_000), Chores(), Turns()
    turns.take(lambda: chores.begin(encoding()))
    while chores.is_behind:
        chores.next_turn()
        turns.take(chores.go_on)
    assert bodies == [encode(response, 2)]
    turns.check(at_least=10)
