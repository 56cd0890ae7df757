"""Deltas are carried out in order and in slices; who asked hears of it when it is done."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

from tests.unit.broker.virtual import Peer, on_node
from tidelog.metadata.image import MetadataDelta, MetadataImage, TopicImage
from tidelog.node.following import Following, Steps
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.testing.simulation import SimulatedWorld

NOTHING = MetadataDelta(before=MetadataImage(), after=MetadataImage())


def created(*names: str) -> MetadataDelta:
    return replace(NOTHING, created=tuple(TopicImage(name, b"") for name in names))


class Follower:
    """A delta asks for as many steps as its topics' names say."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.failures: list[BaseException] = []
        self.following = Following(self._follow, self.failures.append)

    def _follow(self, delta: MetadataDelta) -> Steps:
        for topic in delta.created:
            for _ in range(int(topic.name)):
                self.steps.append(topic.name)
                yield
            if topic.name == "666":
                raise KeyError("a bug")


def test_a_small_delta_is_done_at_once_and_a_large_one_in_slices() -> None:
    async def scenario() -> None:
        follower = Follower()
        assert follower.following.on_delta(created("10")) is None
        assert follower.following.on_delta(NOTHING) is None
        future = follower.following.on_delta(created("1000"))
        assert future is not None
        sizes = []
        while not future.done():
            sizes.append(len(follower.steps))
            await asyncio.sleep(0)
        sizes.append(len(follower.steps))
        assert sizes[-1] == 1010
        assert max(after - before for before, after in pairwise(sizes)) <= 16

    asyncio.run(scenario())


def test_nothing_overtakes_and_what_is_no_business_of_partitions_does_not_wait() -> None:
    async def scenario() -> None:
        follower = Follower()
        first = follower.following.on_delta(created("100"))
        second = follower.following.on_delta(created("1"))
        assert follower.following.on_delta(NOTHING) is None
        assert first is not None and second is not None
        await second
        assert first.done()
        assert follower.steps == ["100"] * 100 + ["1"]

    asyncio.run(scenario())


def test_a_bug_is_told_and_ends_it() -> None:
    async def scenario() -> None:
        follower = Follower()
        first = follower.following.on_delta(created("666"))
        second = follower.following.on_delta(created("1"))
        assert first is not None and second is not None
        await asyncio.wait([first, second])
        assert first.cancelled() and second.cancelled()
        assert isinstance(follower.failures[0], KeyError)
        assert follower.following.on_delta(created("1")) is None
        assert "1" not in follower.steps

    asyncio.run(scenario())


@on_node
async def test_a_topic_that_is_answered_for_serves_and_one_that_is_deleted_meanwhile_goes(
    world: SimulatedWorld, peer: Peer
) -> None:
    assert world.node is not None
    other = Peer(world.node)
    in_image = asyncio.Event()
    world.node.publisher.subscribe(lambda delta: in_image.set())
    large = CreateTopicsRequest.CreatableTopic(name="large", num_partitions=500, replication_factor=-1)
    creating = asyncio.ensure_future(peer.call(CreateTopicsRequest(topics=[large]), 7, CreateTopicsResponse))
    await in_image.wait()
    assert 0 < len(world.node.partitions) < 500
    got = await other.call(InitProducerIdRequest(transactional_id=None), 4, InitProducerIdResponse)
    assert got.error_code == ErrorCode.NONE
    deleting = asyncio.ensure_future(other.call(DeleteTopicsRequest(topic_names=["large"]), 5, DeleteTopicsResponse))
    await creating
    assert len(world.node.partitions) == 500, "the deletion comes after"
    await deleting
    assert len(world.node.partitions) == 0
    await peer.create_topic("large", partitions=200)
    assert peer.produce("large", b"v", partition=199).error_code == ErrorCode.NONE


@on_node
async def test_a_stop_in_between_leaves_the_rest_to_the_next_start(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    in_image = asyncio.Event()
    world.node.publisher.subscribe(lambda delta: in_image.set())
    large = CreateTopicsRequest.CreatableTopic(name="large", num_partitions=500, replication_factor=-1)
    creating = asyncio.ensure_future(peer.call(CreateTopicsRequest(topics=[large]), 7, CreateTopicsResponse))
    await in_image.wait()
    partitions = world.node.partitions
    await world.stop()
    creating.cancel()
    assert partitions.get("large", 499) is None
    await world.start()
    assert len(world.node.partitions) == 500
