"""A whole node on virtual time, and peers that speak to it frame by frame without a network between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from tests.unit.broker.fakes import FakeTransport
from tidelog.node.node import Node
from tidelog.protocol.apis import APIS
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.codec import decode
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.frame import encode_request, read_response_head
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.sim.loop import run, sim_loop
from tidelog.testing.simulation import SimulatedWorld

T = TypeVar("T", bound=Struct)


class Peer:
    """A client's end of one connection. `send` gives the request to the node, `receive` takes the next answer."""

    def __init__(self, node: Node, *, listener: int = 0, client_id: str | None = "peer") -> None:
        self.connection = node.listeners[listener]._accept()
        self.transport = FakeTransport(self.connection)
        self.connection.connection_made(self.transport)
        self._client_id = client_id
        self._sent: list[tuple[int, int, int]] = []
        self._received = bytearray()
        self._written = asyncio.Event()
        self.times: list[float] = []
        write = self.transport.write

        def stamped(data: Any) -> None:
            self.times.append(sim_loop().time())
            write(data)
            self._written.set()

        self.transport.write = stamped  # type: ignore[method-assign]

    def send(self, request: Struct, version: int) -> None:
        shape: Any = type(request)
        correlation_id = 100 + len(self.times) + len(self._sent)
        self._sent.append((shape.API_KEY, version, correlation_id))
        self.feed(encode_request(request, version, correlation_id, self._client_id))

    def feed(self, data: bytes) -> None:
        while data:
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            self.connection.buffer_updated(size)
            shared = self.connection._buffers.shared
            shared[:] = b"\xdd" * len(shared)
        self.connection.listener.ledger.outbox.send()  # as at the end of the loop's turn

    @property
    def has_answer(self) -> bool:
        return bool(self.transport.written) or bool(self._received)

    def receive(self, shape: type[T]) -> T:
        self._received += b"".join(self.transport.written)
        self.transport.written.clear()
        assert self._received, "there is no answer yet"
        size = int.from_bytes(self._received[:4], "big")
        frame = bytes(self._received[4 : 4 + size])
        del self._received[: 4 + size]
        key, version, expected = self._sent.pop(0)
        assert APIS[key].name == shape.__name__.removesuffix("Response")
        correlation_id, position = read_response_head(key, version, frame)
        assert correlation_id == expected, "answers come in the order of the requests"
        return decode(shape, version, frame, position)

    async def call(self, request: Struct, version: int, shape: type[T]) -> T:
        """Send and wait for the answer, on a connection that waits for no other."""
        self._written.clear()
        self.send(request, version)
        await self._written.wait()
        return self.receive(shape)

    def lose(self) -> None:
        self.connection.connection_lost(None)

    # what most tests need

    async def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> CreateTopicsResponse.CreatableTopicResult:
        configs = [CreateTopicsRequest.CreatableTopicConfig(name=k, value=v) for k, v in (config or {}).items()]
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=-1, configs=configs
        )
        answer = await self.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer.topics[0].error_message
        return answer.topics[0]

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> ProduceResponse.PartitionProduceResponse:
        records = bytes(build_batch([RecordInput(None, value, 1) for value in values]))
        return self.produce_batch(topic, records, partition=partition)

    def produce_batch(
        self, topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1
    ) -> ProduceResponse.PartitionProduceResponse:
        data = ProduceRequest.PartitionProduceData(index=partition, records=records)
        named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
        self.send(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[named]), 9)
        return self.receive(ProduceResponse).responses[0].partition_responses[0]


def on_node(scenario: Callable[[SimulatedWorld, Peer], Coroutine[Any, Any, None]], **config: str) -> Callable[[], None]:
    """A test that runs on a started node, in page-cache mode unless it says otherwise: a Produce is answered within the
    call. Configs are given with `_` for `.`."""
    config = {"tidelog_sync_mode": "page-cache", **config}

    async def play() -> None:
        world = SimulatedWorld(7, config={key.replace("_", "."): value for key, value in config.items()})
        await world.start()
        assert world.node is not None
        await scenario(world, Peer(world.node))
        if world.node is not None:
            await world.stop()

    def test() -> None:
        run(play())

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test
