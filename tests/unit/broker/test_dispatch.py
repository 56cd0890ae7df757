"""One way for every request: what is refused, what breaks, who hears of it, and what is counted."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.broker.virtual import Peer, on_node
from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.broker.registry import registered_apis
from tidelog.protocol.apis import APIS
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.testing.simulation import SimulatedWorld

REQUEST = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def replace_handler(world: SimulatedWorld, handle: Callable[[Any, RequestContext], Any]) -> Api:
    assert world.node is not None
    (api,) = [api for api in world.node.services.apis if api.name == "Heartbeat"]
    api.handle = handle
    return api


@on_node
async def test_a_response_is_encoded_in_the_version_that_was_asked(world: SimulatedWorld, peer: Peer) -> None:
    api = replace_handler(world, lambda request, ctx: HeartbeatResponse(error_code=ctx.version, throttle_time_ms=7))
    for version in range(5):
        peer.send(REQUEST, version)
        answer = peer.receive(HeartbeatResponse)
        assert (answer.error_code, answer.throttle_time_ms) == (version, 7 if version else 0)
    assert api.count == 5


@on_node
async def test_what_a_handler_knows(world: SimulatedWorld, peer: Peer) -> None:
    seen: list[RequestContext] = []
    replace_handler(world, lambda request, ctx: seen.append(ctx) or HeartbeatResponse())
    peer.send(REQUEST, 4)
    (ctx,) = seen
    assert (ctx.api.name, ctx.version, ctx.client_id, ctx.client_host) == ("Heartbeat", 4, "peer", "/127.0.0.1")
    assert ctx.connection is peer.connection
    assert ctx.now_ms == world.clock.wall_ms() and ctx.received_s == world.clock.monotonic_s()
    assert ctx.may("READ", group="g")


@on_node
async def test_a_future_answers_when_it_is_done(world: SimulatedWorld, peer: Peer) -> None:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    api = replace_handler(world, lambda request, ctx: future)
    peer.send(REQUEST, 4)
    await asyncio.sleep(2)
    assert not peer.has_answer and api.count == 0
    future.set_result(HeartbeatResponse(error_code=9))
    await asyncio.sleep(0)
    assert peer.receive(HeartbeatResponse).error_code == 9
    assert (api.count, round(api.seconds, 6)) == (1, 2.0), "waiting counts"


@on_node
async def test_a_future_that_outlives_its_connection_answers_nobody(world: SimulatedWorld, peer: Peer) -> None:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    replace_handler(world, lambda request, ctx: future)
    peer.send(REQUEST, 4)
    peer.lose()
    future.set_result(HeartbeatResponse())
    await asyncio.sleep(1)
    assert not peer.has_answer


@on_node
async def test_a_parked_answer_may_come_before_the_handler_returns(world: SimulatedWorld, peer: Peer) -> None:
    def handle(request: Any, ctx: RequestContext) -> Parked:
        parked = ctx.park()
        parked.answer(HeartbeatResponse(error_code=3))
        return parked

    replace_handler(world, handle)
    peer.send(REQUEST, 4)
    peer.send(ApiVersionsRequest(), 0)
    assert peer.receive(HeartbeatResponse).error_code == 3
    assert peer.receive(ApiVersionsResponse).error_code == 0


# what breaks


class Broken(Exception):
    pass


def scenario_of_failure(make: Callable[[], Any], *, fatal: bool, logged: bool = True) -> Callable[[Any], None]:
    """A handler that breaks: its connection ends, others go on, and the node only for a broken invariant."""

    async def scenario(world: SimulatedWorld, peer: Peer) -> None:
        assert world.node is not None
        stopped: list[BaseException] = []
        world.node.services.fatal = stopped.append
        replace_handler(world, lambda request, ctx: make())
        other = Peer(world.node)
        peer.send(REQUEST, 4)
        peer.send(REQUEST, 4) if not peer.transport.closed else None
        await asyncio.sleep(1)
        assert peer.transport.closed == "abort"
        assert not peer.has_answer
        assert bool(stopped) == fatal
        other.send(ApiVersionsRequest(), 0)
        assert other.receive(ApiVersionsResponse).error_code == 0

    def test(caplog: pytest.LogCaptureFixture) -> None:
        on_node(scenario)()
        lines = [record.getMessage() for record in caplog.records if record.name == "tidelog.broker"]
        assert bool(lines) == logged
        assert all("Heartbeat v4 from /127.0.0.1 failed" in line for line in lines)

    return test


def _raise(error: BaseException) -> Any:
    raise error


def _failed_future(error: BaseException | None) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    if error is None:
        future.cancel()
    else:
        future.set_exception(error)
    return future


test_an_exception_ends_the_connection = scenario_of_failure(lambda: _raise(Broken("x")), fatal=False)
test_a_broken_invariant_ends_the_node = scenario_of_failure(lambda: _raise(AssertionError("x")), fatal=True)
test_an_answer_that_cannot_be_written = scenario_of_failure(lambda: HeartbeatResponse(error_code=1 << 40), fatal=False)
test_a_future_that_fails = scenario_of_failure(lambda: _failed_future(Broken("x")), fatal=False)
test_a_future_with_a_broken_invariant = scenario_of_failure(lambda: _failed_future(AssertionError("x")), fatal=True)
test_a_future_that_is_cancelled = scenario_of_failure(lambda: _failed_future(None), fatal=False, logged=False)


# what is refused


def header(key: int, version: int) -> bytes:
    return struct.pack(">hhih", key, version, 7, -1)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (header(999, 0), "unknown API key 999"),
        (header(29, 1) + b"\0", r"API key 29 \(version 1\) is not served here"),
        (header(12, 9) + b"\0", "version 9 of Heartbeat is not supported"),
        (header(12, -1), "version -1 of Heartbeat is not supported"),
        (header(0, 2), "version 2 of Produce is not supported"),
        (header(12, 0)[:7], "ends within its header"),
        (header(12, 0), "HeartbeatRequest v0"),
    ],
)
def test_a_request_that_is_none_ends_the_connection_with_one_line(
    body: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: SimulatedWorld, peer: Peer) -> None:
        peer.feed(struct.pack(">i", len(body)) + body)
        assert peer.transport.closed == "abort"

    on_node(scenario)()
    caplog_lines = [record.getMessage() for record in caplog.records]
    assert len(caplog_lines) == 1
    assert re.search(reason, caplog_lines[0])


@on_node
async def test_a_newer_api_versions_is_answered_in_version_0(world: SimulatedWorld, peer: Peer) -> None:
    """KIP-511: header and body."""
    request = bytearray(encode_request(ApiVersionsRequest(client_software_name="x"), 4, 55, "c"))
    struct.pack_into(">h", request, 6, 77)
    peer._sent.append((18, 0, 55))
    peer.feed(bytes(request))
    answer = peer.receive(ApiVersionsResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in answer.api_keys] == [(18, 0, 4)]


# the list of APIs


def test_the_folder_is_the_list_and_every_node_counts_for_itself() -> None:
    first, second = registered_apis(), registered_apis()
    assert [api.key for api in first] == sorted({api.key for api in first})
    assert all(one is not other for one, other in zip(first, second, strict=True))
    first[0].count += 1
    assert second[0].count == 0 and registered_apis()[0].count == 0


def test_versions_are_within_what_kafka_knows() -> None:
    for api in registered_apis():
        facts = APIS[api.key]
        assert api.name == facts.name and api.request_class is facts.request_class()
        assert facts.min_version <= api.versions.start <= api.versions.stop - 1 <= facts.max_version
