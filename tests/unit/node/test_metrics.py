"""/metrics and /ready: valid, complete, and right, also with names that a parser would stumble over."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.test_apis import commit, find
from tests.unit.broker.test_fetch import fetch
from tests.unit.broker.virtual import Peer, on_node
from tests.unit.node.exposition import Exposition, parse
from tidelog.node.http import CONNECTIONS_MAX, EXCHANGE_S_MAX, HttpListener, _Exchange
from tidelog.node.metrics import render
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.testing.simulation import SimulatedWorld

# Of kafka_exporter, and what the JMX exporter makes of Kafka's own (conventions 3.7).
NAMES = {
    "kafka_brokers",
    "kafka_broker_info",
    "kafka_topic_partitions",
    "kafka_topic_partition_current_offset",
    "kafka_topic_partition_oldest_offset",
    "kafka_topic_partition_in_sync_replica",
    "kafka_topic_partition_leader",
    "kafka_topic_partition_leader_is_preferred",
    "kafka_topic_partition_replicas",
    "kafka_topic_partition_under_replicated_partition",
    "kafka_consumergroup_current_offset",
    "kafka_consumergroup_lag",
    "kafka_consumergroup_current_offset_sum",
    "kafka_consumergroup_lag_sum",
    "kafka_consumergroup_members",
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_partitioncount",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_network_requestmetrics_requests_total",
    "kafka_log_log_size",
    "tidelog_node_info",
}


def scrape(world: SimulatedWorld) -> Exposition:
    assert world.node is not None
    return parse(render(world.node))


@on_node
async def test_an_empty_node_is_valid_and_has_every_name(world: SimulatedWorld, peer: Peer) -> None:
    found = scrape(world)
    assert found.names() >= NAMES
    assert found.value("kafka_brokers") == 1
    assert found.value("kafka_broker_info", id="1", address="node:9092") == 1
    assert found.value("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert all(name.endswith(("_total", "_sum", "_count")) for name, kind in found.kinds.items() if kind == "counter")


@on_node
async def test_numbers_of_topics_and_requests(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t", 2)
    for _ in range(3):
        peer.produce("t", b"one", b"two", partition=1)
    peer.produce_batch("t", b"garbage")
    peer.send(fetch("t", 0, 0), 11)
    answer = peer.receive(FetchResponse)
    out = sum(len(data.records or b"") for data in answer.responses[0].partitions)
    found = scrape(world)
    at = {"topic": "t", "partition": "1"}
    assert found.value("kafka_topic_partitions", topic="t") == 2
    assert found.value("kafka_topic_partition_current_offset", **at) == 6
    assert found.value("kafka_topic_partition_oldest_offset", **at) == 0
    assert found.value("kafka_topic_partition_leader", **at) == 1
    assert found.value("kafka_topic_partition_replicas", **at) == 1
    assert found.value("kafka_topic_partition_in_sync_replica", **at) == 1
    assert found.value("kafka_topic_partition_leader_is_preferred", **at) == 1
    assert found.value("kafka_topic_partition_under_replicated_partition", **at) == 0
    assert found.value("kafka_log_log_size", **at) == out
    total = "kafka_server_brokertopicmetrics_{}_total"
    assert found.value(total.format("messagesin"), topic="t") == 6
    assert found.value(total.format("bytesin"), topic="t") == out
    assert found.value(total.format("bytesout"), topic="t") == out
    assert found.value(total.format("failedproducerequests"), topic="t") == 1
    assert found.value("kafka_network_requestmetrics_requests_total", request="Produce") == 4
    assert found.value("kafka_server_socket_server_metrics_connection_count") == 1
    peer.lose()
    assert scrape(world).value("kafka_server_socket_server_metrics_connection_count") == 0


@on_node
async def test_a_deleted_topic_is_forgotten(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    peer.produce("t", b"v")
    await peer.call(DeleteTopicsRequest(topic_names=["t"]), 5, DeleteTopicsResponse)
    assert not [labels for _, labels in scrape(world).samples if ("topic", "t") in labels]


@pytest.mark.parametrize(
    "group", ["plain", 'quo"ted', "back\\slash", "new\nline", "\\n", "ünïcödé ☃", 'a b{c="d"}', "\r\t"]
)
def test_groups_may_have_any_name(group: str) -> None:
    async def scenario(world: SimulatedWorld, peer: Peer) -> None:
        await peer.create_topic("t")
        for _ in range(5):
            peer.produce("t", b"v")
        await find(peer, group)
        await commit(peer, group, 3)
        found = scrape(world)
        at = {"consumergroup": group, "topic": "t", "partition": "0"}
        assert found.value("kafka_consumergroup_current_offset", **at) == 3
        assert found.value("kafka_consumergroup_lag", **at) == 2
        assert found.value("kafka_consumergroup_lag_sum", consumergroup=group, topic="t") == 2
        assert found.value("kafka_consumergroup_members", consumergroup=group) == 0

    on_node(scenario)()


@on_node
async def test_odd_topic_names(world: SimulatedWorld, peer: Peer) -> None:
    names = ["a.b", "-", "_", "...", "x" * 249]
    for name in names:
        await peer.create_topic(name)
    found = scrape(world)
    assert [found.value("kafka_topic_partitions", topic=name) for name in names] == [1] * 5


@on_node
async def test_large_sums_keep_their_last_digits(world: SimulatedWorld, peer: Peer) -> None:
    """A counter that is rounded stands still for a scraper, then jumps."""
    assert world.node is not None
    api = world.node.services.apis[0]
    api.count, api.seconds = 1, 123_456_789.012_345
    first = scrape(world).value("kafka_network_requestmetrics_totaltimems_sum", request=api.name)
    api.seconds += 0.001
    assert scrape(world).value("kafka_network_requestmetrics_totaltimems_sum", request=api.name) - first > 0.9


# HTTP


class Client:
    """The transport of one exchange, with what was answered."""

    def __init__(self, world: SimulatedWorld, listener: HttpListener | None = None) -> None:
        assert world.node is not None
        self.exchange = _Exchange(listener or HttpListener(world.node))
        self.is_aborted = False
        self.answer = b""
        self.is_closed = False
        self.exchange.connection_made(self)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.answer += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True
        self.exchange.connection_lost(None)

    def get(self, request: bytes, chunk: int = 1 << 20) -> tuple[int, dict[str, str], str]:
        self.send(request, chunk)
        return self.received()

    def send(self, request: bytes, chunk: int = 1 << 20) -> None:
        for start in range(0, len(request), chunk):
            self.exchange.data_received(request[start : start + chunk])

    def received(self) -> tuple[int, dict[str, str], str]:
        head, _, body = self.answer.decode().partition("\r\n\r\n")
        status, *lines = head.split("\r\n")
        assert status.startswith("HTTP/1.1 ")
        headers = dict(line.split(": ", 1) for line in lines)
        assert headers["Connection"] == "close" and self.is_closed
        return int(status.split(" ")[1]), headers, body


@on_node
async def test_ready_tells_the_state(world: SimulatedWorld, peer: Peer) -> None:
    status, headers, body = Client(world).get(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (status, body, headers["Content-Length"]) == (200, "serving\n", "8")
    assert world.node is not None
    world.node._fatal(AssertionError("a bug"))
    assert Client(world).get(b"GET /ready HTTP/1.0\n\n")[::2] == (503, "failed\n")
    await world.node.stop()
    world.kill()


@on_node
async def test_metrics_are_served_as_prometheus_wants_them(world: SimulatedWorld, peer: Peer) -> None:
    for chunk in (1, 7, 1 << 20):
        client = Client(world)
        client.send(b"GET /metrics?x=y HTTP/1.1\r\nHost: x\r\n\r\n", chunk)
        await asyncio.sleep(0.1)
        status, headers, body = client.received()
        assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert int(headers["Content-Length"]) == len(body.encode())
        parse(body)


@on_node
async def test_the_page_of_many_partitions_is_made_in_slices_once_for_all_who_ask(
    world: SimulatedWorld, peer: Peer
) -> None:
    assert world.node is not None
    await peer.create_topic("many", partitions=1000)
    listener = HttpListener(world.node)
    clients = [Client(world, listener) for _ in range(3)]
    turns = 0
    for client in clients:
        client.send(b"GET /metrics HTTP/1.1\r\n\r\n")
    while not clients[0].is_closed:
        turns += 1
        if turns == 2:
            deleting = asyncio.ensure_future(
                peer.call(DeleteTopicsRequest(topic_names=["many"]), 5, DeleteTopicsResponse)
            )
            clients[1].abort()
        await asyncio.sleep(0)
    assert turns >= 5, "ten lines for each partition, two thousand in one go"
    body = clients[0].received()[2]
    assert parse(body).value("kafka_log_log_logendoffset", topic="many", partition="999") == 0
    assert clients[2].received()[2] == body
    assert clients[1].answer == b""
    await deleting


@pytest.mark.parametrize(
    ("request_line", "expected"),
    [
        (b"GET / HTTP/1.1", 404),
        (b"GET /metrics/ HTTP/1.1", 404),
        (b"POST /metrics HTTP/1.1", 405),
        (b"garbage", 405),
        (b"", 405),
        (b"\xff\xfe\xfd", 405),
    ],
)
def test_anything_else_is_refused(request_line: bytes, expected: int) -> None:
    async def scenario(world: SimulatedWorld, peer: Peer) -> None:
        assert Client(world).get(request_line + b"\r\n\r\n")[0] == expected

    on_node(scenario)()


@on_node
async def test_a_head_has_no_body(world: SimulatedWorld, peer: Peer) -> None:
    status, headers, body = Client(world).get(b"HEAD /ready HTTP/1.1\r\n\r\n")
    assert (status, headers["Content-Length"], body) == (200, "8", "")


@on_node
async def test_a_request_without_end_is_refused(world: SimulatedWorld, peer: Peer) -> None:
    client = Client(world)
    assert client.get(b"GET /ready HTTP/1.1\r\nX: " + b"x" * 9000, 1000)[0] == 431
    client.exchange.data_received(b"more")
    assert client.answer.count(b"HTTP/1.1") == 1


@on_node
async def test_an_exchange_has_its_time_and_so_many_go_on_at_once(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    listener = HttpListener(world.node)
    slow = [Client(world, listener) for _ in range(CONNECTIONS_MAX)]
    assert Client(world, listener).is_aborted
    await asyncio.sleep(EXCHANGE_S_MAX - 1)
    assert slow[0].get(b"GET /ready HTTP/1.1\r\n\r\n")[0] == 200
    assert not any(client.is_aborted for client in slow)
    await asyncio.sleep(2)
    assert all(client.is_aborted for client in slow), "also the one that does not take its answer"
    assert not Client(world, listener).is_aborted


@on_node
async def test_what_clients_make_the_node_hold_is_on_the_page(world: SimulatedWorld, peer: Peer) -> None:
    found = scrape(world)
    assert found.value("tidelog_ledger_used", resource="connections") == 1
    assert found.value("tidelog_ledger_limit", resource="answer_bytes") == 128 << 20
    assert found.value("tidelog_ledger_refused_total", resource="request_bytes") == 0
    assert found.value("tidelog_connections_refused_total") == 0
