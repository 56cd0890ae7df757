"""Markers for the partitions of this node: many of them are written in several turns of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.log.transactions import Marker
from tidelog.node import transactions
from tidelog.node.transactions import MARKERS_PER_TURN, LocalMarkers
from tidelog.protocol.errors import ErrorCode

MARKER = Marker(1, 0, 0, True, 2)
Done = Callable[[ErrorCode], None]


class Partitions:
    """Partition p of topic `led` is here, those of `moved` are elsewhere, others are not at all."""

    def get(self, topic: str, index: int) -> object | None:
        return (topic, index) if topic == "led" else None


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    written: list[object] = []

    def write_marker(partition: object, marker: Marker, now_ms: int, done: Done) -> None:
        written.append(partition)
        done(ErrorCode.NONE)

    monkeypatch.setattr(transactions, "write_marker", write_marker)
    return written


def make() -> LocalMarkers:
    image = SimpleNamespace(partition=lambda topic, index: topic if topic == "moved" else None)
    clock: Any = SimpleNamespace(wall_ms=lambda: 5)
    publisher: Any = SimpleNamespace(image=image)
    partitions: Any = Partitions()
    return LocalMarkers(partitions, publisher, clock)


def test_few_are_written_at_once_and_each_has_its_own_answer(written: list[object]) -> None:
    answers: list[dict[Any, ErrorCode]] = []
    make().write(MARKER, [("led", 0), ("moved", 1), ("gone", 2)], answers.append)
    expected = [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [list(answer.values()) for answer in answers] == [expected]


def test_many_take_turns_with_the_loop_and_stay_in_order(written: list[object]) -> None:
    async def main() -> None:
        markers = make()
        ended: list[int] = []
        many = [("led", index) for index in range(3 * MARKERS_PER_TURN)]

        def first_ended(results: object) -> None:
            ended.append(1)
            markers.write(MARKER, [("led", 90_000)], lambda results: ended.append(3))

        markers.write(MARKER, many, first_ended)
        markers.write(MARKER, [("led", 80_000)], lambda results: ended.append(2))
        assert len(written) == MARKERS_PER_TURN and not ended
        while len(ended) < 3:
            before = len(written)
            await asyncio.sleep(0)
            assert len(written) - before <= MARKERS_PER_TURN
        assert ended == [1, 2, 3]
        assert written == [*many, ("led", 80_000), ("led", 90_000)]

    asyncio.run(main())
