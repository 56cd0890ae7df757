"""DescribeProducers of a partition with thousands of producers is answered in slices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.unit.coordinator.turns import Turns
from tidelog.broker.apis.describe_producers import describing
from tidelog.coordinator.chores import Chores
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

COUNT = 10_000


class FakePartitions:
    def __init__(self) -> None:
        state = SimpleNamespace(epoch=3, batches=[], last_timestamp=5, coordinator_epoch=7, current_txn_first_offset=11)
        self.producers = dict.fromkeys(range(COUNT), state)

    def get(self, topic: str, index: int) -> Any:
        return SimpleNamespace(log=SimpleNamespace(producers=self.producers)) if index == 0 else None

    def why_missing(self, topic: str, index: int) -> ErrorCode:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_thousands_of_producers_are_described_in_slices() -> None:
    partitions: Any = FakePartitions()
    answers: list[DescribeProducersResponse] = []
    wanted = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 7])
    chores, turns = Chores(), Turns()
    work = describing(DescribeProducersRequest(topics=[wanted]), partitions, answers.append)
    turns.take(lambda: chores.begin(work))
    partitions.producers.clear()  # they expire meanwhile
    while chores.is_behind:
        chores.next_turn()
        turns.take(chores.go_on)
    found, missing = answers[0].topics[0].partitions
    assert [one.producer_id for one in found.active_producers] == list(range(COUNT))
    assert (found.active_producers[0].coordinator_epoch, found.active_producers[0].last_sequence) == (7, -1)
    assert (missing.partition_index, missing.error_code) == (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    turns.check(at_least=3)
