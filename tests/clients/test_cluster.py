"""The node describes itself."""

from __future__ import annotations

from tests.clients.matrix import feature, section
from tests.clients.model import Client, ProducerOptions, Record
from tests.clients.served import Served, stored_batches

pytestmark = section("Cluster")


@feature("describe cluster")
def test_describe_cluster(client: Client) -> None:
    cluster, brokers = client.cluster()
    assert len(brokers) == 1
    assert cluster is not None and len(cluster) == 22


@feature("describe log dirs")
def test_log_dirs(client: Client, topic: str, broker: Served) -> None:
    assert client.log_sizes()[topic, 0] == 0
    client.produce(topic, [Record(value=b"x" * 1000)], ProducerOptions())
    assert client.log_sizes()[topic, 0] == sum(batch.size for batch in stored_batches(broker, topic)) > 1000
