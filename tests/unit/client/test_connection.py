from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from struct import pack
from typing import Any

import pytest

from tests.unit.client.fakes import PORT, FakeBroker
from tidelog.client.connection import Connection, VersionRange
from tidelog.client.errors import ConnectionLostError, RequestTimeoutError, UnreachableError, UnsupportedApiError
from tidelog.client.options import ClientOptions
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.frame import encode_response
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.fetch import FetchRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.sim.loop import run, sim_loop
from tidelog.sim.net import NetOptions, SimNet


def play(
    scenario: Callable[[FakeBroker], Coroutine[Any, Any, None]], *, seeds: int = 3, net: NetOptions | None = None
) -> None:
    async def main() -> None:
        broker = FakeBroker(SimNet(sim_loop(), options=net))
        await broker.start()
        await scenario(broker)

    for seed in range(seeds):
        run(main(), seed)


async def connect(broker: FakeBroker, **options: Any) -> Connection:
    return await Connection.open(broker.net.host("client"), broker.name, PORT, ClientOptions(**options))


def find(key: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=key)


def found(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(host=request.key)


class TestNegotiation:
    def test_it_learns_the_versions_of_the_broker(self) -> None:
        async def scenario(broker: FakeBroker) -> None:
            broker.ranges = {3: (0, 5), 18: (0, 4), 1: (20, 30)}
            connection = await connect(broker)
            assert connection.versions[3] == VersionRange(0, 5)
            assert connection.version_of(MetadataRequest) == 5
            assert connection.version_of(MetadataRequest, highest=2) == 2
            with pytest.raises(UnsupportedApiError, match="does not offer FindCoordinator"):
                connection.version_of(FindCoordinatorRequest)
            with pytest.raises(UnsupportedApiError, match="versions 20 to 30 of Fetch, this client 4 to"):
                connection.version_of(FetchRequest)
            connection.close()

        play(scenario)

    @pytest.mark.parametrize(("their_max", "asked_again"), [(2, 2), (3, 3), (None, 0)])
    def test_an_older_broker_answers_in_version_0_and_is_asked_again(
        self, their_max: int | None, asked_again: int
    ) -> None:
        async def scenario(broker: FakeBroker) -> None:
            def versions(request: ApiVersionsRequest, version: int) -> ApiVersionsResponse | bytes:
                apis = {3: (0, 5)} if their_max is None else {3: (0, 5), 18: (0, their_max)}
                broker.ranges = apis
                answer = broker.api_versions(request, version)
                if version > (their_max or 0):
                    answer.error_code = ErrorCode.UNSUPPORTED_VERSION
                    answer.api_keys = [api for api in answer.api_keys if api.api_key == 18]
                    return encode_response(answer, 0, 1)
                return answer

            broker.handlers[ApiVersionsRequest] = versions
            connection = await connect(broker)
            assert connection.version_of(MetadataRequest) == 5
            assert [version for _, version in broker.seen] == [ApiVersionsRequest.MAX_VERSION, asked_again]
            connection.close()

        play(scenario)

    def test_the_client_names_itself(self) -> None:
        async def scenario(broker: FakeBroker) -> None:
            (await connect(broker)).close()
            request = broker.requests(ApiVersionsRequest)[0]
            assert (request.client_software_name, request.client_software_version) == ("tidelog", "0.1")

        play(scenario)

    def test_something_that_is_not_kafka(self) -> None:
        async def scenario(broker: FakeBroker) -> None:
            broker.handlers[ApiVersionsRequest] = lambda request, version: b"\0\0\0\x08\0\0\0\x01oops"
            with pytest.raises(UnreachableError, match="does not speak Kafka's protocol"):
                await connect(broker)

        play(scenario)

    def test_a_web_server(self) -> None:
        async def scenario(broker: FakeBroker) -> None:
            broker.handlers[ApiVersionsRequest] = lambda request, version: b"HTTP/1.1 400 Bad Request\r\n\r\n"
            with pytest.raises(ConnectionLostError, match="announced an answer of 1213486160 bytes"):
                await connect(broker)

        play(scenario)


class TestCalls:
    def test_pipelined_answers_find_their_callers(self) -> None:
        async def scenario(broker: FakeBroker) -> None:
            broker.handlers[FindCoordinatorRequest] = found
            connection = await connect(broker, in_flight_max=7)
            keys = [f"key-{number}" for number in range(50)]
            answers = await asyncio.gather(
                *(connection.call(find(key), FindCoordinatorResponse, version=1) for key in keys)
            )
            assert [answer.host for answer in answers] == keys
            connection.close()

        play(scenario, net=NetOptions(split=0.9))

    def test_at_most_so_many_are_under_way(self) -> None:
        async def scenario(broker: FakeBroker) -> None:
            release = asyncio.Event()

            async def slow(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
                await release.wait()
                return found(request, version)

            broker.handlers[FindCoordinatorRequest] = slow
            connection = await connect(broker, in_flight_max=3)
            calls = [
                asyncio.create_task(connection.call(find("x"), FindCoordinatorResponse, version=1)) for _ in range(10)
            ]
            await asyncio.sleep(5)
            assert len(connection._waiting) == 3
            release.set()
            await asyncio.gather(*calls)
            connection.close()

        play(scenario)

    def test_answers_of_any_size_arrive_whole(self) -> None:
        async def scenario(broker: FakeBroker) -> None:
            sizes = [0, 1, 65_520, 65_530, 65_540, 300_000, 5, 1_000_000, 2]
            broker.handlers[MetadataRequest] = lambda request, version: MetadataResponse(
                brokers=[
                    MetadataResponse.MetadataResponseBroker(host="x" * 1000)
                    for _ in range(sizes[request.topics[0].name.__len__()] // 1000)
                ],
                cluster_id="y" * (sizes[len(request.topics[0].name)] % 1000),
            )
            connection = await connect(broker)
            answers = await asyncio.gather(
                *(
                    connection.call(
                        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="n" * index)]),
                        MetadataResponse,
                        version=9,
                    )
                    for index in range(len(sizes))
                )
            )
            got = [sum(len(b.host) for b in answer.brokers) + len(answer.cluster_id or "") for answer in answers]
            assert got == sizes
            connection.close()

        play(scenario, seeds=10)

    def test_a_request_may_depend_on_its_version(self) -> None:
        async def scenario(broker: FakeBroker) -> None:
            broker.handlers[FindCoordinatorRequest] = found
            connection = await connect(broker)
            answer = await connection.call(lambda version: find(f"v{version}"), FindCoordinatorResponse, version=2)
            assert answer.host == "v2"
            connection.close()

        play(scenario)

    def test_a_caller_that_gives_up_leaves_the_others_alone(self) -> None:
        async def scenario(broker: FakeBroker) -> None:
            async def slow(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
                await asyncio.sleep(1)
                return found(request, version)

            broker.handlers[FindCoordinatorRequest] = slow
            connection = await connect(broker)
            first = asyncio.create_task(connection.call(find("first"), FindCoordinatorResponse, version=1))
            second = asyncio.create_task(connection.call(find("second"), FindCoordinatorResponse, version=1))
            await asyncio.sleep(0.5)
            first.cancel()
            assert (await second).host == "second"
            connection.close()

        play(scenario)


class TestFailures:
    def test_no_answer_in_time_ends_the_connection_and_all_that_wait(self) -> None:
        async def scenario(broker: FakeBroker) -> None:
            broker.handlers[FindCoordinatorRequest] = lambda request, version: None
            connection = await connect(broker)
            other = asyncio.create_task(connection.call(find("x"), FindCoordinatorResponse, version=1, timeout_s=1000))
            began_s = sim_loop().time()
            with pytest.raises(RequestTimeoutError, match="did not answer FindCoordinator within 7 s"):
                await connection.call(find("x"), FindCoordinatorResponse, version=1, timeout_s=7)
            assert sim_loop().time() - began_s == pytest.approx(7)
            with pytest.raises(ConnectionLostError):
                await other
            assert not connection.is_open
            with pytest.raises(ConnectionLostError):
                await connection.call(find("x"), FindCoordinatorResponse, version=1)

        play(scenario)

    def test_the_broker_dies_with_a_request_under_way(self) -> None:
        async def scenario(broker: FakeBroker) -> None:
            broker.handlers[FindCoordinatorRequest] = lambda request, version: None
            connection = await connect(broker)
            call = asyncio.create_task(connection.call(find("x"), FindCoordinatorResponse, version=1))
            await asyncio.sleep(1)
            broker.net.crash("b1")
            with pytest.raises(ConnectionLostError, match="b1:9092 closed the connection: it was reset"):
                await call
            await connection.wait_closed()

        play(scenario)

    def test_an_answer_to_another_request(self) -> None:
        async def scenario(broker: FakeBroker) -> None:
            broker.handlers[FindCoordinatorRequest] = lambda request, version: encode_response(
                found(request, version), version, 99
            )
            connection = await connect(broker)
            with pytest.raises(ConnectionLostError, match="answered request 99, which is not the next one"):
                await connection.call(find("x"), FindCoordinatorResponse, version=1)

        play(scenario)

    def test_an_answer_that_nobody_asked_for(self) -> None:
        async def scenario(broker: FakeBroker) -> None:
            connection = await connect(broker)
            broker.connections[0].transport.write(b"\0\0\0\4\0\0\0\0")
            await connection.wait_closed()
            assert not connection.is_open

        play(scenario)

    @pytest.mark.parametrize("size", [-1, 3, 1001, 2**31 - 1])
    def test_an_answer_that_is_too_large_or_too_small(self, size: int) -> None:
        async def scenario(broker: FakeBroker) -> None:
            broker.handlers[FindCoordinatorRequest] = lambda request, version: pack(">i", size) + b"\0" * 8
            connection = await connect(broker, response_bytes_max=1000)
            with pytest.raises(ConnectionLostError, match=f"announced an answer of {size} bytes, the limit is 1000"):
                await connection.call(find("x"), FindCoordinatorResponse, version=1)

        play(scenario)

    def test_an_answer_that_cannot_be_read(self) -> None:
        async def scenario(broker: FakeBroker) -> None:
            broker.handlers[FindCoordinatorRequest] = lambda request, version: b"\0\0\0\x06\0\0\0\2\0\0"
            connection = await connect(broker)
            with pytest.raises(ProtocolError, match="FindCoordinatorResponse v1: the bytes end too early"):
                await connection.call(find("x"), FindCoordinatorResponse, version=1)
            assert not connection.is_open

        play(scenario)

    def test_nobody_there(self) -> None:
        async def scenario(broker: FakeBroker) -> None:
            with pytest.raises(UnreachableError, match="b1:1: nobody listens there"):
                await Connection.open(broker.net.host("client"), "b1", 1, ClientOptions())
            broker.net.partition("client", "b1")
            with pytest.raises(UnreachableError, match="b1:9092: no answer within 2 s"):
                await connect(broker, connect_timeout_s=2)

        play(scenario)

    def test_close_closes_the_socket(self) -> None:
        async def scenario(broker: FakeBroker) -> None:
            connection = await connect(broker)
            connection.close()
            connection.close()
            await connection.wait_closed()
            await asyncio.sleep(1)
            assert broker.connections[0].is_lost

        play(scenario)
