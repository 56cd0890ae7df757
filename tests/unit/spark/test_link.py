"""The synchronous bridge, on a real node: offsets, chunks that cover a stretch, commits, and how each thing fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tidelog.client.aborted import Aborted
from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError, MissingError, UnreachableError
from tidelog.client.metadata import TopicPartition
from tidelog.client.producing import produce
from tidelog.client.topics import delete_records, delete_topics
from tidelog.protocol.batch import RecordInput, build_batch, iter_headers
from tidelog.protocol.compression import Codec
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import decode
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.net import OsNet
from tidelog.spark.link import Link
from tidelog.spark.pump import SilentError, TopicChangedError, _whole
from tidelog.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def link(broker: Broker) -> Iterator[Link]:
    with Link({"bootstrap.servers": broker.bootstrap_servers, "max.partition.fetch.bytes": "2000"}) as link:
        yield link


def ask(broker: Broker, work: object) -> object:
    """One thing of an administrator, by the client core itself."""

    async def run() -> object:
        async with Cluster(OsNet(), SystemClock(), broker.bootstrap_servers) as cluster:
            return await work(cluster)  # type: ignore[operator]

    return asyncio.run(run())


def fill(broker: Broker, topic: str, batches: int, records: int, *, first_ms: int = 1_000) -> None:
    """Batches of the same number of records, record n of the topic with the time first_ms + n."""

    async def send(cluster: Cluster) -> None:
        for number in range(batches):
            inputs = [
                RecordInput(b"k%d" % one, b"v" * 100, timestamp=first_ms + number * records + one)
                for one in range(records)
            ]
            batch = build_batch(inputs, codec=Codec.LZ4 if number % 2 else Codec.NONE)
            await produce(cluster, TopicPartition(topic, 0), batch)

    ask(broker, send)


def offsets_of(chunks: object) -> list[int]:
    return [offset for chunk in chunks for offset in decode(chunk.data).offset.tolist()]  # type: ignore[attr-defined]


def test_chunks_cover_the_stretch_in_order_and_each_is_whole(broker: Broker, link: Link) -> None:
    topic = broker.create_topic()
    fill(broker, topic, 12, 10)
    chunks = list(link.fetch(topic, 0, 25, 95))
    assert len(chunks) > 2  # the limit of a fetch is smaller than the stretch
    assert offsets_of(chunks) == list(range(20, 100))  # from the batch with 25 to the one with 94
    assert [chunk.next_offset for chunk in chunks][-1] == 100
    assert all(decode(chunk.data).consumed == len(chunk.data) for chunk in chunks)
    assert list(link.fetch(topic, 0, 50, 50)) == []


def test_a_reader_that_stops_early_leaves_the_link_usable(broker: Broker, link: Link) -> None:
    topic = broker.create_topic()
    fill(broker, topic, 30, 10)
    chunks = link.fetch(topic, 0, 0, 300)
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    assert offsets_of(link.fetch(topic, 0, 0, 300)) == list(range(300))


def test_offsets_by_end_by_isolation_and_by_time(broker: Broker, link: Link) -> None:
    topic = broker.create_topic(partitions=2)
    fill(broker, topic, 3, 10)
    both = [(topic, 0), (topic, 1)]
    assert link.partitions([topic]) == {topic: [0, 1]}
    assert link.earliest(both) == {(topic, 0): 0, (topic, 1): 0}
    assert link.latest(both) == {(topic, 0): 30, (topic, 1): 0}
    assert link.at_times({(topic, 0): 1_017, (topic, 1): 0}) == {(topic, 0): 17, (topic, 1): None}
    assert link.sizes(both)[topic, 0] > 2_000


def test_an_open_transaction_bounds_what_is_committed_and_aborted_batches_are_known(broker: Broker, link: Link) -> None:
    topic = broker.create_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for end in ("commit", "abort", "commit", "open"):
        producer.begin_transaction()
        producer.produce(topic, end.encode())
        producer.flush()
        if end == "commit":
            producer.commit_transaction()
        elif end == "abort":
            producer.abort_transaction()
    at = (topic, 0)
    assert link.latest([at])[at] == 6  # three records, three markers
    assert link.latest([at], "read_uncommitted")[at] == 7
    shown = []
    for chunk in link.fetch(topic, 0, 0, 6):
        aborted = Aborted(chunk.aborted)
        shown += [header.base_offset for _, header in iter_headers(chunk.data) if not aborted.hides(header)]
    assert shown == [0, 4]
    assert offsets_of(link.fetch(topic, 0, 0, 7, "read_uncommitted")) == list(range(7))
    producer.abort_transaction()


def test_what_retention_took_is_an_error_and_not_an_empty_answer(broker: Broker, link: Link) -> None:
    topic = broker.create_topic()
    fill(broker, topic, 3, 10)
    ask(broker, lambda cluster: delete_records(cluster, {TopicPartition(topic, 0): 15}))
    assert link.earliest([(topic, 0)]) == {(topic, 0): 15}
    with pytest.raises(BrokerError) as caught:
        list(link.fetch(topic, 0, 3, 30))
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_topic_that_was_created_again_is_another_one(broker: Broker, link: Link) -> None:
    topic = broker.create_topic()
    fill(broker, topic, 2, 10)
    before = link.topic_ids([topic])[topic]
    assert offsets_of(link.fetch(topic, 0, 0, 20, topic_id=before)) == list(range(20))
    ask(broker, lambda cluster: delete_topics(cluster, [topic]))
    assert link.existing([topic]) == {}
    broker.create_topic(topic)
    fill(broker, topic, 2, 10)
    assert link.topic_ids([topic])[topic] != before
    with pytest.raises(TopicChangedError, match=before):
        list(link.fetch(topic, 0, 0, 20, topic_id=before))


def test_silence_has_an_end(broker: Broker) -> None:
    topic = broker.create_topic()
    fill(broker, topic, 1, 10)
    with Link({"bootstrap.servers": broker.bootstrap_servers, "fetch.max.wait.ms": "1"}) as link:
        chunks = link.fetch(topic, 0, 0, 11, silence_s=0.05)
        assert offsets_of([next(chunks)]) == list(range(10))
        with pytest.raises(SilentError, match=r"offset 10 .* reaches to 11"):
            next(chunks)


def test_a_group_s_progress_is_committed(broker: Broker, link: Link) -> None:
    topic = broker.create_topic(partitions=2)
    link.commit("progress", {(topic, 0): 7, (topic, 1): 3})
    assert link.committed("progress") == {(topic, 0): 7, (topic, 1): 3}
    with pytest.raises(BrokerError):
        link.commit("progress", {("nothing-of-that-name", 0): 1})


def test_a_missing_topic_and_a_wrong_address_say_so(link: Link) -> None:
    with pytest.raises(MissingError, match="nowhere"):
        link.partitions(["nowhere"])
    with Link({"bootstrap.servers": "127.0.0.1:1"}) as lost, pytest.raises(UnreachableError, match="nobody listens"):
        lost.topics()


def test_whole_stops_before_a_part_and_before_the_end() -> None:
    log = bytearray()
    for base in (0, 2, 10):
        log += build_batch([RecordInput(None, b"x"), RecordInput(None, b"y")], base_offset=base)
    size = len(log) // 3
    view = memoryview(bytes(log))
    assert _whole(view, 0, 100) == (3 * size, 12)
    assert _whole(view[:-1], 0, 100) == (2 * size, 4)
    assert _whole(view[:-1], 0, 7) == (2 * size, 7)  # the next batch begins behind the end: all before it is there
    assert _whole(view, 0, 3) == (2 * size, 4)
    assert _whole(view[:0], 5, 9) == (0, 5)
