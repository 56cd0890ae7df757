"""The serial heart: one decision at a time over the newest image, answered when its records are committed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from tidelog.controller.controller import Controller
from tidelog.controller.decision import Decide, Decision, encode_record
from tidelog.kernel.errors import DiskError, DiskFullError
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.protocol.messages import records_metadata as r
from tidelog.protocol.records_framing import decode_metadata_record
from tidelog.raft.quorum import Committed
from tidelog.sim.loop import run


class SlowQuorum:
    """Commits a second after it was asked."""

    def __init__(self) -> None:
        self.appended: list[list[bytes]] = []
        self.committed: list[list[bytes]] = []
        self.under_way = 0
        self.fails: Exception | None = None
        self.snapshots: list[list[bytes]] = []
        self.wants_snapshot = False

    async def append(self, values: Sequence[bytes]) -> Committed:
        self.under_way += 1
        assert self.under_way == 1, "one append at a time"
        base = sum(map(len, self.appended))
        self.appended.append(list(values))
        await asyncio.sleep(1)
        self.under_way -= 1
        if self.fails is not None:
            raise self.fails
        self.committed.append(list(values))
        return Committed(base, 1, values)

    def maybe_snapshot(self, values: Callable[[], Any]) -> bool:
        if self.wants_snapshot:
            self.snapshots.append(list(values()))
        return self.wants_snapshot


class World:
    def __init__(self) -> None:
        self.quorum = SlowQuorum()
        self.publisher = MetadataPublisher()
        self.controller = Controller(self.quorum, self.publisher)
        self.running = asyncio.ensure_future(self.controller.run())

    async def stop(self) -> None:
        self.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.running


def in_world(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def play() -> None:
        world = World()
        await scenario(world)
        await world.stop()

    def test() -> None:
        run(play())

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test


def add_topic(name: str) -> Decide:
    """Answers with the topics that were there when it decided."""

    def decide(image: MetadataImage) -> Decision:
        return Decision(sorted(image.topics), [r.TopicRecord(name=name, topic_id=name.encode().ljust(16))])

    return decide


@in_world
async def test_the_response_comes_after_the_commit_and_the_replay(world: World) -> None:
    future = world.controller.submit(add_topic("a"))
    await asyncio.sleep(0.9)
    assert world.quorum.appended and not future.done()
    assert "a" not in world.publisher.image.topics, "nobody sees what is not committed"
    seen: list[bool] = []
    future.add_done_callback(lambda _: seen.append("a" in world.publisher.image.topics))
    assert await future == []
    assert seen == [True]


@in_world
async def test_decisions_are_serial_and_in_the_order_of_the_calls(world: World) -> None:
    futures = [world.controller.submit(add_topic(name)) for name in "cab"]
    assert await asyncio.gather(*futures) == [[], ["c"], ["a", "c"]]
    assert world.publisher.image.offset == 2
    names = [decode_metadata_record(batch[0])[0].name for batch in world.quorum.committed]  # type: ignore[index,attr-defined]
    assert names == ["c", "a", "b"]


@in_world
async def test_responses_come_in_the_order_of_the_calls_also_those_without_records(world: World) -> None:
    order: list[int] = []
    for number in range(6):
        decide = add_topic(f"t{number}") if number % 2 == 0 else lambda image: Decision(None)
        world.controller.submit(decide).add_done_callback(lambda _, n=number: order.append(n))
    await asyncio.sleep(10)
    assert order == list(range(6))


@in_world
async def test_a_decision_without_records_writes_nothing(world: World) -> None:
    assert await world.controller.submit(lambda image: Decision("answer")) == "answer"
    assert world.quorum.appended == []
    assert world.publisher.image.offset == -1


@in_world
async def test_a_decision_that_fails_answers_its_caller_only(world: World) -> None:
    def broken(image: MetadataImage) -> Decision:
        raise ValueError("a bug in one decision")

    first = world.controller.submit(add_topic("a"))
    second = world.controller.submit(broken)
    third = world.controller.submit(add_topic("b"))
    assert await first == []
    with pytest.raises(ValueError, match="a bug in one decision"):
        await second
    assert await third == ["a"]
    assert not world.running.done()


@in_world
async def test_who_gave_up_does_not_undo_the_decision(world: World) -> None:
    future = world.controller.submit(add_topic("a"))
    await asyncio.sleep(0.5)
    future.cancel()
    assert await world.controller.submit(add_topic("b")) == ["a"]


@in_world
async def test_a_failed_append_ends_the_controller(world: World) -> None:
    """Metadata that may be half there: the node stops, and recovery decides."""
    world.quorum.fails = DiskError("cannot sync")
    waiting = world.controller.submit(add_topic("a"))
    queued = world.controller.submit(add_topic("b"))
    with pytest.raises(DiskError):
        await world.running
    assert not waiting.done() and not queued.done(), "nobody may be told that it failed: it may have happened"
    assert not world.publisher.image.topics
    world.running = asyncio.ensure_future(asyncio.sleep(0))


@in_world
async def test_a_full_disk_refuses_a_change_and_the_next_may_succeed(world: World) -> None:
    world.quorum.fails = DiskFullError("no room")
    refused = world.controller.submit(add_topic("a"))
    with pytest.raises(DiskFullError):
        await refused
    world.quorum.fails = None
    assert await world.controller.submit(add_topic("b")) == []


@in_world
async def test_subscribers_hear_of_a_change_before_its_caller(world: World) -> None:
    """CreateTopics is answered when the partition is there."""
    events: list[str] = []
    world.publisher.subscribe(lambda delta: events.append(f"delta {[topic.name for topic in delta.created]}"))
    future = world.controller.submit(add_topic("a"))
    future.add_done_callback(lambda _: events.append("answer"))
    await future
    await asyncio.sleep(0)
    assert events == ["delta ['a']", "answer"]


@in_world
async def test_a_snapshot_holds_what_was_committed_with_this_very_change(world: World) -> None:
    world.quorum.wants_snapshot = True
    await world.controller.submit(add_topic("a"))
    await world.controller.submit(add_topic("b"))
    again = MetadataPublisher()
    again.replay(world.quorum.snapshots[1], 0, 1)
    assert sorted(again.image.topics) == ["a", "b"]
    assert world.quorum.snapshots[0] == [encode_record(r.TopicRecord(name="a", topic_id=b"a".ljust(16)))]


@in_world
async def test_a_decision_may_be_submitted_from_within_another(world: World) -> None:
    inner: list[asyncio.Future[Any]] = []

    def outer(image: MetadataImage) -> Decision:
        inner.append(world.controller.submit(add_topic("inner")))
        return add_topic("outer")(image)

    await world.controller.submit(outer)
    assert await inner[0] == ["outer"]
