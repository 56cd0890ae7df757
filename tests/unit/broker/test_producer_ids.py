"""Producer ids: never given twice, asked for in blocks, and a controller that fails fails those who wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidelog.broker.producer_ids import ProducerIds
from tidelog.controller.producer_ids import BLOCK
from tidelog.metadata.image import MetadataImage
from tidelog.sim.loop import run


class FakeController:
    """Decides over an image that it keeps; the answer comes when the test says so."""

    def __init__(self) -> None:
        self.image = MetadataImage(next_producer_id=5000)
        self.waiting: list[tuple[asyncio.Future[Any], Any]] = []
        self.submitted = 0

    def submit(self, decide: Any) -> asyncio.Future[Any]:
        self.submitted += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        decision = decide(self.image)
        self.image = MetadataImage(next_producer_id=decision.records[0].next_producer_id)
        self.waiting.append((future, decision.response))
        return future

    def commit(self) -> None:
        waiting, self.waiting = self.waiting, []
        for future, response in waiting:
            future.set_result(response)

    def fail(self, error: Exception) -> None:
        waiting, self.waiting = self.waiting, []
        for future, _ in waiting:
            future.set_exception(error)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def taken(answer: int | asyncio.Future[int]) -> int:
    return answer if isinstance(answer, int) else answer.result()


def test_a_block_serves_a_thousand_and_one_request_asks_for_it() -> None:
    async def scenario() -> None:
        controller = FakeController()
        ids = ProducerIds(controller, node_id=1)  # type: ignore[arg-type]
        first, second = ids.take(), ids.take()
        assert isinstance(first, asyncio.Future) and isinstance(second, asyncio.Future)
        assert controller.submitted == 1, "two who wait share a block"
        controller.commit()
        await settle()
        assert (first.result(), second.result()) == (5000, 5001)
        rest = [ids.take() for _ in range(BLOCK - 2)]
        assert rest == list(range(5002, 6000)), "from memory, at once"
        assert controller.submitted == 1
        following = ids.take()
        assert isinstance(following, asyncio.Future) and controller.submitted == 2
        controller.commit()
        await settle()
        assert following.result() == 6000

    run(scenario())


@pytest.mark.parametrize("count", [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_more_who_wait_than_a_block_holds_get_ids_of_their_own(count: int) -> None:
    """A fleet of idempotent producers that starts at once."""

    async def scenario() -> None:
        controller = FakeController()
        ids = ProducerIds(controller, node_id=1)  # type: ignore[arg-type]
        waiting = [ids.take() for _ in range(count)]
        while any(isinstance(one, asyncio.Future) and not one.done() for one in waiting):
            assert controller.waiting, "somebody waits and nobody was asked"
            controller.commit()
            await settle()
        assert [taken(one) for one in waiting] == list(range(5000, 5000 + count))
        assert taken(ids.take()) == 5000 + count if count % BLOCK else True

    run(scenario())


def test_whoever_comes_while_a_second_block_is_awaited_stands_behind() -> None:
    async def scenario() -> None:
        controller = FakeController()
        ids = ProducerIds(controller, node_id=1)  # type: ignore[arg-type]
        waiting = [ids.take() for _ in range(BLOCK + 1)]
        controller.commit()
        await settle()
        waiting.append(ids.take())
        assert controller.submitted == 2
        controller.commit()
        await settle()
        assert [taken(one) for one in waiting] == list(range(5000, 5000 + BLOCK + 2))

    run(scenario())


def test_a_controller_that_fails_fails_those_who_wait_and_the_next_asks_again() -> None:
    async def scenario() -> None:
        controller = FakeController()
        ids = ProducerIds(controller, node_id=1)  # type: ignore[arg-type]
        waiting = [ids.take() for _ in range(3)]
        controller.fail(RuntimeError("no room"))
        await settle()
        for one in waiting:
            assert isinstance(one, asyncio.Future)
            with pytest.raises(RuntimeError, match="no room"):
                one.result()
        again = ids.take()
        assert isinstance(again, asyncio.Future) and controller.submitted == 2
        controller.commit()
        await settle()
        assert again.result() == 5000 + BLOCK, "the block that failed may have been written: it is not used"

    run(scenario())


def test_who_gave_up_takes_no_id() -> None:
    async def scenario() -> None:
        controller = FakeController()
        ids = ProducerIds(controller, node_id=1)  # type: ignore[arg-type]
        first, second = ids.take(), ids.take()
        assert isinstance(first, asyncio.Future) and isinstance(second, asyncio.Future)
        first.cancel()
        controller.commit()
        await settle()
        assert second.result() == 5000

    run(scenario())


def test_a_controller_that_stops_cancels_those_who_wait() -> None:
    async def scenario() -> None:
        controller = FakeController()
        ids = ProducerIds(controller, node_id=1)  # type: ignore[arg-type]
        first = ids.take()
        assert isinstance(first, asyncio.Future)
        controller.waiting[0][0].cancel()
        await settle()
        assert first.cancelled()

    run(scenario())
