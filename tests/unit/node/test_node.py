"""A node's life on the real runtime: it starts, stops and fails without leaving anything behind."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tidelog.controller.decision import Decision
from tidelog.kernel.errors import DirectoryLockedError, DiskError, ListenError, TidelogError
from tidelog.log.config import LogConfig
from tidelog.log.meta_properties import META_PROPERTIES, MetaProperties
from tidelog.metadata.image import NO_LEADER
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.node.config import load
from tidelog.node.node import Node, State
from tidelog.node.ports import os_ports
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.protocol.messages.records_metadata import AccessControlEntryRecord, RemoveTopicRecord
from tidelog.raft.quorum import Quorum
from tidelog.runtime.loop import run
from tidelog.testing.wire import Wire


def make(data: Path, *overrides: str) -> Node:
    defaults = [f"log.dirs={data}", "listeners=PLAINTEXT://127.0.0.1:0", "tidelog.http.listener="]
    return Node(load(None, {}, [*defaults, *overrides]), os_ports())


async def ask(node: Node, *calls: tuple[Any, int, Any]) -> list[Any]:
    """Requests from a thread, as the loop must go on."""

    def talk() -> list[Any]:
        with Wire(node.addresses[0]) as wire:
            return [wire.call(*call) for call in calls]

    return await asyncio.to_thread(talk)


def traffic(topic: str) -> list[tuple[Any, int, Any]]:
    created = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    records = bytes(build_batch([RecordInput(b"k", b"v", 1)]))
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    return [
        (CreateTopicsRequest(topics=[created]), 7, CreateTopicsResponse),
        (ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[named]), 9, ProduceResponse),
    ]


class Leftovers:
    """Descriptors, threads and tasks before and after."""

    def __init__(self) -> None:
        gc.collect()
        self._threads = set(threading.enumerate())
        self._descriptors = self._open()

    @staticmethod
    def _open() -> list[str]:
        found = []
        for name in os.listdir("/proc/self/fd"):
            try:
                found.append(os.readlink(f"/proc/self/fd/{name}"))
            except OSError:
                continue  # the descriptor of the listing itself
        return sorted(found)

    def check(self) -> None:
        gc.collect()
        assert [thread.name for thread in threading.enumerate() if thread not in self._threads] == []
        if self._descriptors is not None:
            left = list(self._open())
            for name in self._descriptors:
                if name in left:
                    left.remove(name)
            assert [name for name in left if "/proc/" not in name] == []


def leaving_nothing(scenario: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    async def play(tmp_path: Path) -> None:
        await scenario(tmp_path)
        # Only what asyncio itself keeps for the threads that this test used.
        others = asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]
        assert not others, "tasks were left behind"

    @pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors by /proc")
    def test(tmp_path: Path) -> None:
        run(asyncio.sleep(0))
        before = Leftovers()
        run(play(tmp_path))
        before.check()

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test


# starting and stopping


@leaving_nothing
async def test_a_clean_stop_leaves_nothing_but_the_data(tmp_path: Path) -> None:
    for number in range(2):
        node = make(tmp_path)
        await node.start()
        assert node.state is State.SERVING
        answers = await ask(node, *traffic(f"t{number}"))
        assert answers[1].responses[0].partition_responses[0].error_code == ErrorCode.NONE
        await node.stop()
        await node.wait()
        assert node.state is State.STOPPED
        node.ports.release()
        assert (tmp_path / ".kafka_cleanshutdown").exists()


@leaving_nothing
async def test_a_clean_stop_is_told_in_the_metadata(tmp_path: Path) -> None:
    node = make(tmp_path)
    await node.start()
    await ask(node, *traffic("told"))
    await node.stop()
    ports = node.ports
    quorum = Quorum(ports.disk, ports.clock, str(tmp_path), 1, config=LogConfig(), snapshot_bytes=1 << 30)
    publisher = MetadataPublisher()
    for committed in quorum.start():
        publisher.replay(committed.values, committed.base_offset, committed.epoch)
    quorum.close()
    ports.release()
    assert publisher.image.brokers[1].fenced
    state = publisher.image.partition("told", 0)
    assert state is not None and state.leader == NO_LEADER


@leaving_nothing
async def test_a_stop_that_overtakes_a_deletion_leaves_metadata_that_makes_sense(tmp_path: Path) -> None:
    node = make(tmp_path)
    await node.start()
    await ask(node, *traffic("overtaken"))
    topic_id = node.publisher.image.topics["overtaken"].topic_id

    async def stall(values: list[bytes]) -> None:
        node._quorum._append(values, 0)
        await asyncio.Event().wait()

    node._quorum.append = stall  # type: ignore[assignment,method-assign]
    node.controller.submit(lambda image: Decision(None, [RemoveTopicRecord(topic_id=topic_id)]))
    await asyncio.sleep(0)
    await node.stop()
    node.ports.release()
    again = make(tmp_path)
    await again.start()
    assert "overtaken" not in again.publisher.image.topics
    await again.stop()
    again.ports.release()


@leaving_nothing
async def test_a_start_that_refuses_the_metadata_leaves_the_mark_of_a_clean_stop(tmp_path: Path) -> None:
    """Whoever it belongs to need not check every log because somebody else has looked at it."""
    node = make(tmp_path)
    await node.start()
    await ask(node, *traffic("kept"))
    await node.controller.submit(lambda image: Decision(None, [AccessControlEntryRecord(id=b"a" * 16)]))
    await node.stop()
    node.ports.release()
    marker = (tmp_path / ".kafka_cleanshutdown").read_bytes()
    refused = make(tmp_path)
    with pytest.raises(TidelogError, match="holds 1 ACL"):
        await refused.start()
    refused.ports.release()
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == marker
    allowed = make(tmp_path, "tidelog.acls.unenforced.allow=true")
    await allowed.start()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    await allowed.stop()
    allowed.ports.release()


@leaving_nothing
async def test_stopping_twice_and_stopping_what_never_started(tmp_path: Path) -> None:
    node = make(tmp_path)
    await node.stop()
    assert node.state is State.STOPPED
    node = make(tmp_path)
    await node.start()
    await asyncio.gather(node.stop(), node.stop())
    await node.stop()
    node.ports.release()


@leaving_nothing
async def test_connections_are_cut_by_a_stop(tmp_path: Path) -> None:
    node = make(tmp_path)
    await node.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", node.listeners[0].port)
    await node.stop()
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    node.ports.release()


# starts that fail


@leaving_nothing
async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        node = make(
            tmp_path,
            f"listeners=A://127.0.0.1:0,B://127.0.0.1:{port}",
            "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
            "inter.broker.listener.name=A",
        )
        with pytest.raises(ListenError, match=f"127.0.0.1:{port}: another program listens there"):
            await node.start()
    assert node.state is State.STOPPED
    node.ports.release()
    assert not (tmp_path / ".kafka_cleanshutdown").exists(), "no promise of a clean stop"
    again = make(tmp_path)
    await again.start()
    await again.stop()
    again.ports.release()


@leaving_nothing
async def test_a_directory_that_is_in_use(tmp_path: Path) -> None:
    first, second = make(tmp_path), make(tmp_path)
    await first.start()
    with pytest.raises(DirectoryLockedError, match=f"{tmp_path} is in use by another node"):
        await second.start()
    second.ports.release()
    assert (await ask(first, (ApiVersionsRequest(), 0, ApiVersionsResponse)))[0].error_code == 0
    await first.stop()
    first.ports.release()


def damaged_snapshot(directory: Path) -> None:
    (directory / f"{5:020d}-{1:010d}.checkpoint").write_bytes(b"no snapshot at all")


def damaged_record(directory: Path) -> None:
    log = directory / f"{0:020d}.log"
    batch = build_batch([RecordInput(None, b"\x01\xff\x7f\x00", 1)], base_offset=0, leader_epoch=1)
    log.write_bytes(bytes(batch))


def damaged_state(directory: Path) -> None:
    (directory / "quorum-state").write_text("{")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        pytest.param(damaged_snapshot, "metadata snapshot .* is not complete", id="snapshot"),
        pytest.param(damaged_record, "a newer release has written", id="record of a newer release"),
        pytest.param(damaged_state, "quorum-state cannot be read", id="quorum-state"),
    ],
)
def test_damaged_metadata_is_a_sentence_and_releases_the_directory(
    damage: Callable[[Path], None], sentence: str, tmp_path: Path
) -> None:
    async def scenario(data: Path) -> None:
        directory = data / "__cluster_metadata-0"
        directory.mkdir()
        (data / META_PROPERTIES).write_bytes(MetaProperties("cluster", 1, bytes(range(16))).encode())
        damage(directory)
        for _ in range(2):
            node = make(data)
            with pytest.raises(TidelogError, match=sentence):
                await node.start()
            node.ports.release()

    scenario.__name__ = "scenario"
    leaving_nothing(scenario)(tmp_path)


@leaving_nothing
async def test_a_start_that_is_given_up(tmp_path: Path) -> None:
    node = make(tmp_path)
    starting = asyncio.ensure_future(node.start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert node.state is State.STOPPED
    node.ports.release()


# a node that breaks


@leaving_nothing
async def test_a_broken_invariant_ends_the_node_and_cuts_its_clients(tmp_path: Path) -> None:
    node = make(tmp_path)
    await node.start()
    assert node.is_ready
    reader, writer = await asyncio.open_connection("127.0.0.1", node.listeners[0].port)
    node.services.fatal(AssertionError("a bug"))
    assert not node.is_ready
    assert await asyncio.wait_for(reader.read(), 10) == b"", "clients go elsewhere at once"
    with pytest.raises(OSError, match=r".*"):
        await asyncio.open_connection("127.0.0.1", node.listeners[0].port)
    with pytest.raises(AssertionError, match="a bug"):
        await node.wait()
    await node.stop()
    assert not (tmp_path / ".kafka_cleanshutdown").exists(), "recovery looks at the logs"
    writer.close()
    node.ports.release()


@leaving_nothing
async def test_a_task_that_fails_ends_the_node(tmp_path: Path) -> None:
    node = make(tmp_path)
    await node.start()

    async def broken() -> None:
        raise DiskError("cannot sync")

    node._spawn(broken())
    with pytest.raises(DiskError):
        await node.wait()
    await node.stop()
    node.ports.release()


@leaving_nothing
async def test_a_stop_that_cannot_write_lets_go_of_the_directory(tmp_path: Path) -> None:
    node = make(tmp_path)
    await node.start()

    def full(*_: Any, **__: Any) -> None:
        raise DiskError("cannot replace: No space left on device")

    node.ports.disk.replace_file = full  # type: ignore[method-assign]
    with pytest.raises(DiskError, match="No space left"):
        await node.stop()
    assert node.state is State.STOPPED
    node.ports.release()
    again = make(tmp_path)
    await again.start()
    await again.stop()
    again.ports.release()


def test_a_callback_that_fails_ends_the_node_and_a_broken_connection_does_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = make(tmp_path)
        await node.start()
        loop = asyncio.get_running_loop()
        node.on_loop_error(loop, {"message": "a socket", "exception": ConnectionResetError("gone")})
        assert node.is_ready
        node.on_loop_error(loop, {"message": "a callback", "exception": KeyError("bug")})
        with pytest.raises(KeyError):
            await node.wait()
        await node.stop()
        node.ports.release()

    run(scenario())


# what clients are told to dial


async def dialled(node: Node, host: str) -> list[tuple[str, int]]:
    def talk() -> list[tuple[str, int]]:
        with Wire(f"{host}:{node.listeners[0].port}") as wire:
            answer = wire.call(MetadataRequest(topics=[]), 9, MetadataResponse)
        return [(broker.host, broker.port) for broker in answer.brokers]

    return await asyncio.to_thread(talk)


@pytest.mark.parametrize(
    ("listener", "advertised", "hosts"),
    [
        pytest.param("127.0.0.1", "auto", {"127.0.0.1": "127.0.0.1"}, id="one address"),
        pytest.param("", "auto", {"127.0.0.1": "127.0.0.1", "127.0.0.2": "127.0.0.2"}, id="every address"),
        pytest.param("0.0.0.0", "auto", {"127.0.0.2": "127.0.0.2"}, id="every IPv4 address"),
        pytest.param("127.0.0.1", "PLAINTEXT://kafka.example:19092", {"127.0.0.1": "kafka.example"}, id="a name"),
    ],
)
def test_advertised_listeners(listener: str, advertised: str, hosts: dict[str, str], tmp_path: Path) -> None:
    async def scenario() -> None:
        node = make(tmp_path, f"listeners=PLAINTEXT://{listener}:0", f"advertised.listeners={advertised}")
        await node.start()
        port = 19092 if "example" in advertised else node.listeners[0].port
        for host, told in hosts.items():
            assert await dialled(node, host) == [(told, port)]
        await node.stop()
        node.ports.release()

    run(scenario())


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_ipv6_addresses_are_told_bare_and_shown_in_brackets(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = make(tmp_path, "listeners=PLAINTEXT://[::1]:0")
        await node.start()
        assert node.addresses == [f"[::1]:{node.listeners[0].port}"]
        assert await dialled(node, "::1") == [("::1", node.listeners[0].port)]
        await node.stop()
        node.ports.release()

    run(scenario())


def test_two_listeners_each_tell_their_own_address(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = make(
            tmp_path,
            "listeners=A://127.0.0.1:0,B://127.0.0.2:0",
            "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
            "inter.broker.listener.name=A",
            "advertised.listeners=B://named.example:7",
        )
        await node.start()

        def talk(number: int) -> list[tuple[str, int]]:
            with Wire(node.addresses[number]) as wire:
                answer = wire.call(MetadataRequest(topics=[]), 9, MetadataResponse)
            return [(broker.host, broker.port) for broker in answer.brokers]

        assert await asyncio.to_thread(talk, 0) == [("127.0.0.1", node.listeners[0].port)]
        assert await asyncio.to_thread(talk, 1) == [("named.example", 7)]
        await node.stop()
        node.ports.release()

    run(scenario())


@pytest.mark.parametrize("host", ["", "0.0.0.0"])
def test_a_node_that_listens_everywhere_registers_a_name_that_can_be_dialled(tmp_path: Path, host: str) -> None:
    async def scenario() -> None:
        node = make(tmp_path, f"listeners=PLAINTEXT://{host}:0")
        await node.start()
        (endpoint,) = node.publisher.image.brokers[1].endpoints
        assert (endpoint.host, endpoint.port) == ("localhost", node.listeners[0].port)
        await node.stop()
        node.ports.release()

    run(scenario())
