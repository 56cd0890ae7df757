"""Several log directories: who goes where, what one that fails takes away, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.unit.broker.virtual import Peer
from tidelog.kernel.errors import DiskError, TidelogError
from tidelog.log.errors import DirectoryMismatchError
from tidelog.node.metrics import render
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.sim.disk import DiskFaults
from tidelog.sim.loop import run
from tidelog.testing.simulation import SimulatedWorld

Scenario = Callable[[SimulatedWorld, Peer], Coroutine[Any, Any, None]]


def on_three(scenario: Scenario) -> Callable[[], None]:
    """The metadata is in /a; partitions in all three."""

    async def play() -> None:
        world = SimulatedWorld(7, config={"log.dirs": "/a,/b,/c"})
        await world.start()
        assert world.node is not None
        await scenario(world, Peer(world.node))
        if world.node is not None:
            await world.stop()

    def test() -> None:
        run(play())

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


def where(world: SimulatedWorld, topic: str) -> dict[int, str]:
    assert world.node is not None
    found = {p.index: p.home.directory.path for p in world.node.partitions if p.topic == topic}
    return dict(sorted(found.items()))


def produce_request(topic: str, partition: int) -> ProduceRequest:
    batch = bytes(build_batch([RecordInput(None, b"v", 1)]))
    data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
    named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[named])


async def produce(peer: Peer, topic: str, partition: int) -> int:
    answer = await peer.call(produce_request(topic, partition), 9, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


async def described(peer: Peer) -> dict[str, tuple[int, int]]:
    """(error, number of partitions) by directory."""
    answer = await peer.call(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
    return {d.log_dir: (d.error_code, sum(len(t.partitions) for t in d.topics)) for d in answer.results}


async def leaders(peer: Peer, topic: str) -> list[int]:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    answer = await peer.call(request, 9, MetadataResponse)
    return [p.leader_id for p in sorted(answer.topics[0].partitions, key=lambda p: p.partition_index)]


@on_three
async def test_partitions_are_spread_and_found_again(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t", 6)
    before = where(world, "t")
    assert sorted(before.values()) == ["/a", "/a", "/b", "/b", "/c", "/c"]
    assert await described(peer) == {"/a": (0, 2), "/b": (0, 2), "/c": (0, 2)}
    for index in range(6):
        assert await produce(peer, "t", index) == ErrorCode.NONE
    await world.stop()
    await world.start()
    assert where(world, "t") == before
    assert world.node is not None and all(p.high_watermark == 1 for p in world.node.partitions)


@on_three
async def test_a_failed_sync_takes_its_directory_offline_and_nothing_else(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t", 3)
    places = where(world, "t")
    lost = next(index for index, path in places.items() if path == "/b")
    for index in range(3):
        assert await produce(peer, "t", index) == ErrorCode.NONE
    world.disk.faults = DiskFaults(broken_below=("/b",))
    for index in range(3):
        code = await produce(peer, "t", index)
        assert code == (ErrorCode.KAFKA_STORAGE_ERROR if index == lost else ErrorCode.NONE)
    assert (await described(peer))["/b"] == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
    assert world.node is not None
    page = render(world.node).splitlines()
    assert 'kafka_log_logmanager_logdirectoryoffline{logDirectory="/b"} 1' in page
    assert 'kafka_log_logmanager_logdirectoryoffline{logDirectory="/c"} 0' in page
    assert "kafka_log_logmanager_offlinelogdirectorycount 1" in page
    assert "kafka_controller_kafkacontroller_offlinepartitionscount 1" in page
    assert 'tidelog_sync_rounds_total{logDirectory="/c"} 2' in page
    await asyncio.sleep(1)
    assert await leaders(peer, "t") == [-1 if index == lost else 1 for index in range(3)]
    world.disk.faults = DiskFaults()
    assert await produce(peer, "t", lost) == ErrorCode.KAFKA_STORAGE_ERROR, "never tried again and trusted"
    # New topics go where there is a disk.
    await peer.create_topic("u", 4)
    assert sorted(where(world, "u").values()) == ["/a", "/a", "/c", "/c"]


@on_three
async def test_a_directory_that_comes_back_is_led_again(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t", 3)
    places = where(world, "t")
    lost = next(index for index, path in places.items() if path == "/b")
    assert await produce(peer, "t", lost) == ErrorCode.NONE
    world.disk.faults = DiskFaults(broken_below=("/b",))
    assert await produce(peer, "t", lost) == ErrorCode.KAFKA_STORAGE_ERROR
    await asyncio.sleep(1)
    await world.stop()
    await world.start()
    peer = Peer(world.node)  # type: ignore[arg-type]
    assert (await described(peer))["/b"] == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
    assert await leaders(peer, "t") == [-1 if index == lost else 1 for index in range(3)]
    assert await produce(peer, "t", lost) == ErrorCode.KAFKA_STORAGE_ERROR, "not made anew elsewhere"
    world.disk.faults = DiskFaults()
    await world.stop()
    await world.start()
    peer = Peer(world.node)  # type: ignore[arg-type]
    assert where(world, "t") == places
    assert await leaders(peer, "t") == [1, 1, 1]
    assert await produce(peer, "t", lost) == ErrorCode.NONE
    assert world.node is not None and (found := world.node.partitions.get("t", lost)) is not None
    assert found.high_watermark >= 2


@on_three
async def test_a_topic_on_a_lost_directory_can_be_deleted(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t", 3)
    world.disk.faults = DiskFaults(broken_below=("/b",))
    for index in range(3):
        await produce(peer, "t", index)
    await peer.call(DeleteTopicsRequest(topic_names=["t"]), 5, DeleteTopicsResponse)
    assert [await produce(peer, "t", index) for index in range(3)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3


@on_three
async def test_a_log_that_was_moved_by_hand_is_led_where_it_is(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t", 1)
    assert where(world, "t") == {0: "/a"}
    assert await produce(peer, "t", 0) == ErrorCode.NONE
    await world.stop()
    world.disk.rename("/a/t-0", "/c/t-0")
    await world.start()
    assert where(world, "t") == {0: "/c"}
    assert world.node is not None
    state = world.node.publisher.image.partition("t", 0)
    assert state is not None and state.directories == (world.node.partitions.homes[2].directory_id,)


@on_three
async def test_a_log_that_lost_what_was_synced_keeps_its_directory_away_not_the_others(
    world: SimulatedWorld, peer: Peer
) -> None:
    await peer.create_topic("t", 3)
    lost = next(index for index, path in where(world, "t").items() if path == "/b")
    for index in range(3):
        assert await produce(peer, "t", index) == ErrorCode.NONE
    await world.stop()
    world.disk.remove(f"/b/t-{lost}/{0:020d}.log")
    await world.start()
    peer = Peer(world.node)  # type: ignore[arg-type]
    assert (await described(peer))["/b"] == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
    codes = [await produce(peer, "t", index) for index in range(3)]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR if index == lost else ErrorCode.NONE for index in range(3)]


@on_three
async def test_the_directory_of_the_metadata_takes_the_node_with_it(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t", 3)
    world.disk.faults = DiskFaults(broken_below=("/a",))
    index = next(index for index, path in where(world, "t").items() if path == "/a")
    peer.send(produce_request("t", index), 9)
    assert world.node is not None
    with pytest.raises(DiskError):
        await world.node.wait()
    world.kill()


def test_a_topic_without_room_opens_by_itself_when_there_is() -> None:
    async def play() -> None:
        world = SimulatedWorld(3, config={"tidelog.sync.mode": "page-cache"})
        await world.start()
        peer = Peer(world.node)  # type: ignore[arg-type]
        assert world.node is not None
        used = world.disk._measure()
        # Room for the records of the metadata, not for the files of the partitions.
        made = asyncio.ensure_future(peer.create_topic("t", 1))
        await asyncio.sleep(0)
        world.disk.faults = DiskFaults(capacity_bytes=used + 400)
        await made
        full = peer.produce("t", b"v" * 400)
        assert full.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        world.disk.faults = DiskFaults()
        await asyncio.sleep(2)
        assert peer.produce("t", b"v").error_code == ErrorCode.NONE
        await world.stop()

    run(play())


def test_a_second_node_s_directory_is_refused() -> None:
    async def play() -> None:
        world = SimulatedWorld(5, config={"log.dirs": "/a"})
        await world.start()
        await world.stop()
        world._config["log.dirs"] = "/b"
        await world.start()
        await world.stop()
        world._config["log.dirs"] = "/a,/b"
        with pytest.raises(DirectoryMismatchError, match="belongs to cluster"):
            await world.start()

    run(play())


def test_a_copied_directory_is_refused() -> None:
    async def play() -> None:
        world = SimulatedWorld(5, config={"log.dirs": "/a"})
        await world.start()
        await world.stop()
        content = world.disk.read_file("/a/meta.properties")
        assert content is not None
        world.disk.make_dirs("/b")
        world.disk.replace_file("/b/meta.properties", content)
        world._config["log.dirs"] = "/a,/b"
        with pytest.raises(TidelogError, match=r"same directory\.id"):
            await world.start()

    run(play())


def test_the_metadata_log_may_have_a_directory_of_its_own() -> None:
    async def play() -> None:
        world = SimulatedWorld(5, config={"log.dirs": "/a,/b", "metadata.log.dir": "/m"})
        await world.start()
        peer = Peer(world.node)  # type: ignore[arg-type]
        await peer.create_topic("t", 2)
        assert world.disk.is_dir("/m/__cluster_metadata-0")
        assert not world.disk.exists("/a/__cluster_metadata-0")
        assert where(world, "t") == {0: "/a", 1: "/b"}
        await world.stop()
        await world.start()
        assert where(world, "t") == {0: "/a", 1: "/b"}
        await world.stop()

    run(play())
