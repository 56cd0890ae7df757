"""A scripted broker on the simulated network: real frames and bytes, answers by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from msgspec import Struct

from tidelog.client.cluster import Cluster
from tidelog.client.options import ClientOptions
from tidelog.protocol.apis import APIS
from tidelog.protocol.codec import decode
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.frame import encode_response, read_request_head
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.sim.clock import SimClock
from tidelog.sim.loop import sim_loop
from tidelog.sim.net import SimNet

PORT = 9092
Handler = Callable[[Any, int], Any]
"""(request, version) to a response; bytes are sent as they are, None is no answer, an awaitable is awaited."""


class FakeBroker:
    """Answers ApiVersions by itself; everything else is in `handlers`, by request class."""

    def __init__(self, net: SimNet, name: str = "b1", node_id: int = 1) -> None:
        self.net = net
        self.name = name
        self.node_id = node_id
        self.handlers: dict[type[Struct], Handler] = {ApiVersionsRequest: self.api_versions}
        self.seen: list[tuple[Struct, int]] = []
        self.connections: list[_Connection] = []
        self.ranges = {key: (api.min_version, api.max_version) for key, api in APIS.items() if api.max_version >= 0}

    async def start(self) -> None:
        await self.net.host(self.name).listen(self.name, PORT, self._accept)

    def requests(self, shape: type[Struct]) -> list[Any]:
        return [request for request, _ in self.seen if isinstance(request, shape)]

    def api_versions(self, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in self.ranges.items()
            ]
        )

    def _accept(self) -> _Connection:
        self.connections.append(_Connection(self))
        return self.connections[-1]


class _Connection(asyncio.Protocol):
    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.data = bytearray()
        self.is_lost = False
        self._answers: asyncio.Task[None] | None = None
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._answers = asyncio.get_running_loop().create_task(self._answer_all())

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if self._answers is not None:
            self._answers.cancel()

    def data_received(self, data: bytes) -> None:
        self.data += data
        while len(self.data) >= 4 and len(self.data) >= 4 + int.from_bytes(self.data[:4], "big"):
            size = int.from_bytes(self.data[:4], "big")
            self._queue.put_nowait(bytes(self.data[4 : 4 + size]))
            del self.data[: 4 + size]

    async def _answer_all(self) -> None:
        while True:
            await self._answer(await self._queue.get())

    async def _answer(self, frame: bytes) -> None:
        head = read_request_head(frame)
        shape = APIS[head.api_key].request_class()
        request = decode(shape, head.api_version, frame, head.body_position)
        self.broker.seen.append((request, head.api_version))
        answer = self.broker.handlers[shape](request, head.api_version)
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, Struct):
            answer = encode_response(answer, head.api_version, head.correlation_id)
        if answer is not None and not self.is_lost:
            self.transport.write(answer)


class FakeCluster:
    """Brokers b1, b2, ... that agree on who leads what; `leaders[topic]` is a list of node ids, one per partition."""

    def __init__(self, net: SimNet, brokers: int = 1) -> None:
        self.net = net
        self.brokers = [FakeBroker(net, f"b{number}", number) for number in range(1, brokers + 1)]
        self.leaders: dict[str, list[int]] = {}
        for broker in self.brokers:
            broker.handlers[MetadataRequest] = self.metadata

    async def start(self) -> None:
        for broker in self.brokers:
            await broker.start()

    def __getitem__(self, node_id: int) -> FakeBroker:
        return self.brokers[node_id - 1]

    def handle(self, shape: type[Struct], handler: Handler) -> None:
        for broker in self.brokers:
            broker.handlers[shape] = handler

    def metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        names = sorted(self.leaders) if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(node_id=broker.node_id, host=broker.name, port=PORT)
                for broker in self.brokers
            ],
            cluster_id="fake",
            controller_id=self.brokers[-1].node_id,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponse.MetadataResponseTopic:
        if name not in self.leaders:
            return MetadataResponse.MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
        partitions = [
            MetadataResponse.MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=7)
            for index, leader in enumerate(self.leaders[name])
        ]
        topic_id = name.encode().ljust(16, b"\0")[:16]
        return MetadataResponse.MetadataResponseTopic(name=name, topic_id=topic_id, partitions=partitions)


def client(net: SimNet, bootstrap: str = f"b1:{PORT}", **options: Any) -> Cluster:
    return Cluster(
        net.host("client"),
        SimClock(sim_loop()),
        bootstrap,
        random=sim_loop().random,
        options=ClientOptions(**options),
    )
