"""What a node does by the clock, on virtual time: retention, checkpoints, idle connections, and topics that go away
in the middle of it."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.virtual import Peer, on_node
from tests.unit.node.exposition import parse
from tidelog.kernel.errors import DiskError
from tidelog.node.metrics import render
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog.sim.disk import DiskFaults
from tidelog.sim.loop import sim_loop
from tidelog.testing.simulation import SimulatedWorld


async def _retention(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t", config={"retention.ms": "60000", "file.delete.delay.ms": "1000"})
    for _ in range(3):
        peer.produce("t", b"old")
    await asyncio.sleep(3600)
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-2)
    request = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted])])
    later = Peer(world.node)  # type: ignore[arg-type]
    assert (await later.call(request, 5, ListOffsetsResponse)).topics[0].partitions[0].offset == 3
    names = world.disk.list_dir("/data/t-0")
    assert [name for name in names if name.endswith(".log")] == [f"{3:020d}.log"]
    assert not [name for name in names if name.endswith(".deleted")]


test_old_records_go_and_their_files_after_them = on_node(_retention, log_retention_check_interval_ms="300000")


async def _checkpoints(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    peer.produce("t", b"v")
    await asyncio.sleep(61)
    assert world.disk.read_file("/data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 1\n"
    assert world.disk.read_file("/data/replication-offset-checkpoint") == b"0\n1\nt 0 1\n"


test_checkpoints_are_written_every_minute = on_node(_checkpoints)


@on_node
async def test_a_checkpoint_syncs_before_it_says_so(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    peer.produce("t", b"v")
    world.disk.trace = trace = []
    assert world.node is not None
    await world.node._upkeep._checkpoint()
    synced = next(n for n, line in enumerate(trace) if line.startswith("sync") and "/data/t-0/" in line)
    told = next(n for n, line in enumerate(trace) if "rename /data/recovery-point-offset-checkpoint.tmp" in line)
    assert synced < told


@on_node
async def test_a_topic_that_is_deleted_during_a_checkpoint_does_not_end_the_node(
    world: SimulatedWorld, peer: Peer
) -> None:
    for name in ("a", "b"):
        await peer.create_topic(name)
        peer.produce(name, b"v")
    world.disk.faults = DiskFaults(sync_delay_s=1.0)
    assert world.node is not None
    checkpoint = asyncio.ensure_future(world.node._upkeep._checkpoint())
    await asyncio.sleep(0.5)
    world.disk.faults = DiskFaults(sync_delay_s=0.01)
    await peer.call(DeleteTopicsRequest(topic_names=["a", "b"]), 5, DeleteTopicsResponse)
    await checkpoint
    assert world.disk.read_file("/data/recovery-point-offset-checkpoint") == b"0\n0\n"


@on_node
async def test_a_checkpoint_that_cannot_sync_ends_the_node_of_one_directory(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    peer.produce("t", b"v")
    world.disk.faults = DiskFaults(fail_syncs=True)
    assert world.node is not None
    await world.node._upkeep._checkpoint()
    with pytest.raises(DiskError):
        await world.node.wait()
    world.kill()


async def _idle_or_not(world: SimulatedWorld, peer: Peer) -> None:
    busy = Peer(world.node)  # type: ignore[arg-type]
    for _ in range(8):
        await asyncio.sleep(20)
        await busy.call(ApiVersionsRequest(), 0, ApiVersionsResponse)
    assert peer.transport.closed == "abort"
    assert not busy.transport.closed


test_idle_connections_are_ended = on_node(_idle_or_not, connections_max_idle_ms="60000")


@on_node
async def test_a_stalled_loop_shows_in_the_metrics(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    lag = world.node.metrics.loop_lag
    await asyncio.sleep(5)
    assert lag.worst_s < 0.001
    assert sum(lag.counts) == lag.counts[0] > 40
    loop = sim_loop()
    await asyncio.sleep(0.05)
    loop._now_s += 3.0  # a callback that took three seconds
    await asyncio.sleep(1)
    assert 2.5 < lag.recent_s < 3.1
    assert lag.counts[-1] == 1
    page = parse(render(world.node))
    assert page.value("tidelog_loop_stop_seconds_bucket", le="2.5") == sum(lag.counts) - 1
    assert page.value("tidelog_loop_stop_seconds_count") == sum(lag.counts)
    await asyncio.sleep(120)
    assert lag.recent_s < 0.1, "it fades"
    assert 2.9 < lag.worst_s < 3.1, "and is not forgotten"
