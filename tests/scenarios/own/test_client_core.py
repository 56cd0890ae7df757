"""Our own client on a real broker: what it does on Tidelog it does on Apache Kafka, with the same answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import pytest

from tests.scenarios.own.conftest import with_cluster
from tidelog.client.brokers import describe_cluster, describe_log_dirs
from tidelog.client.cluster import Cluster
from tidelog.client.configs import (
    ConfigChange,
    ConfigSource,
    ConfigSynonym,
    Operation,
    Resource,
    ResourceType,
    alter_configs,
    describe_configs,
)
from tidelog.client.consumer import Consumer, ConsumerOptions
from tidelog.client.errors import BrokerError, ClientError
from tidelog.client.fetching import FetchLimits, fetch
from tidelog.client.group_offsets import Committed, commit_offsets, delete_offsets, fetch_offsets
from tidelog.client.groups import delete_groups, describe_groups, list_groups
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, end_offsets, list_offsets
from tidelog.client.producer import Producer, ProducerOptions
from tidelog.client.producing import produce, produce_once
from tidelog.client.topics import NewTopic, create_partitions, create_topics, delete_records, delete_topics
from tidelog.protocol.batch import RecordInput, build_batch, iter_headers
from tidelog.protocol.compression import Codec
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.partitioner import partition_for_key

_numbers = itertools.count(1)


@pytest.fixture
def name() -> str:
    return f"core-{next(_numbers)}"


@pytest.fixture
def play(bootstrap: str) -> Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], None]:
    def with_time_limit(scenario: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
        with_cluster(bootstrap, lambda cluster: asyncio.wait_for(scenario(cluster), 60))

    return with_time_limit


Play = Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], None]


def codes(results: Mapping[Any, object]) -> dict[str, str]:
    """What went wrong, by name; "ok" where nothing did."""
    return {str(key): value.code.name if isinstance(value, BrokerError) else "ok" for key, value in results.items()}


async def create(cluster: Cluster, name: str, partitions: int = 1, **configs: str) -> None:
    topic = NewTopic(name=name, partitions=partitions, configs={k.replace("_", "."): v for k, v in configs.items()})
    assert codes(await create_topics(cluster, [topic])) == {name: "ok"}
    # Apache's broker hears of a topic after the controller has answered; the test's own time limit is the end.
    while True:
        try:
            await describe_configs(cluster, Resource(ResourceType.TOPIC, name), ["retention.ms"])
            return
        except BrokerError as error:
            assert error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def fill(cluster: Cluster, at: TopicPartition, *timestamps: int) -> None:
    for timestamp in timestamps:
        await produce(cluster, at, build_batch([RecordInput(b"k", b"v", timestamp)]))


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < count:
        values += [record.value for record in await consumer.poll(10.0)]
    return values


class TestRaw:
    def test_batches_come_back_with_their_offsets(self, play: Play, name: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            await create(cluster, name)
            at = TopicPartition(name, 0)
            batch = bytes(build_batch([RecordInput(b"k", b"v%d" % index, 1_700_000_000_000) for index in range(3)]))
            found = [(await produce(cluster, at, batch, acks=acks)).base_offset for acks in (-1, 1)]
            assert found == [0, 3]
            fetched = await fetch(cluster, at, 0)
            assert [header.base_offset for _, header in iter_headers(fetched.records)] == [0, 3]
            assert bytes(fetched.records[:8]) == bytes(8)
            assert bytes(fetched.records[16 : len(batch)]) == batch[16:]
            assert (fetched.high_watermark, fetched.log_start_offset) == (6, 0)

        play(scenario)

    def test_a_long_poll_ends_when_a_batch_arrives(self, play: Play, name: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            await create(cluster, name)
            at = TopicPartition(name, 0)
            waiting = asyncio.create_task(fetch(cluster, at, 0, FetchLimits(max_wait_ms=30_000)))
            await cluster.refresh([name])
            await fill(cluster, at, 1)
            assert (await asyncio.wait_for(waiting, 20)).high_watermark == 1

        play(scenario)

    def test_offsets_by_time(self, play: Play, name: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            await create(cluster, name)
            at = TopicPartition(name, 0)
            hour = 3_600_000
            await fill(cluster, at, hour, 3 * hour, 2 * hour)
            wanted = {LATEST: 3, EARLIEST: 0, MAX_TIMESTAMP: 1, 0: 0, hour + 1: 1, 3 * hour: 1, 3 * hour + 1: -1}
            for timestamp, offset in wanted.items():
                found = (await list_offsets(cluster, {at: timestamp}))[at]
                assert (timestamp, found.offset) == (timestamp, offset)

        play(scenario)

    def test_mistakes_have_their_codes(self, play: Play, name: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            await create(cluster, name)
            at = TopicPartition(name, 0)

            async def code_of(attempt: Awaitable[object]) -> ErrorCode:
                with pytest.raises(BrokerError) as caught:
                    await attempt
                return caught.value.code

            assert await code_of(fetch(cluster, at, 99)) == ErrorCode.OFFSET_OUT_OF_RANGE
            assert await code_of(fetch(cluster, TopicPartition(name, 7), 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            damaged = build_batch([RecordInput(b"k", b"v", 1)])
            damaged[-1] ^= 1
            assert await code_of(produce_once(cluster, at, damaged)) == ErrorCode.CORRUPT_MESSAGE
            assert await code_of(cluster.topic("nowhere")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        play(scenario)


class TestTopics:
    def test_create_grow_and_delete(self, play: Play, name: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            topics = [
                NewTopic(name=name, partitions=2, configs={"retention.ms": "1234567"}),
                NewTopic(name="not a name"),
                NewTopic(name=f"{name}-wide", replication_factor=5),
                NewTopic(name=f"{name}-odd", configs={"no.such.config": "1"}),
                NewTopic(name=f"{name}-placed", assignments={0: [1], 1: [1]}),
            ]
            assert codes(await create_topics(cluster, topics, validate_only=True))[name] == "ok"
            assert codes(await create_topics(cluster, topics)) == {
                name: "ok",
                "not a name": "INVALID_TOPIC_EXCEPTION",
                f"{name}-wide": "INVALID_REPLICATION_FACTOR",
                f"{name}-odd": "INVALID_CONFIG",
                f"{name}-placed": "ok",
            }
            assert codes(await create_topics(cluster, topics[:1])) == {name: "TOPIC_ALREADY_EXISTS"}
            assert len((await cluster.topic(f"{name}-placed")).partitions) == 2
            grown = await create_partitions(cluster, {name: 5, f"{name}-placed": 1, "nowhere": 3})
            assert codes(grown) == {
                name: "ok",
                f"{name}-placed": "INVALID_PARTITIONS",
                "nowhere": "UNKNOWN_TOPIC_OR_PARTITION",
            }
            while len((await cluster.refresh([name])).topic(name).partitions) < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # Apache's brokers hear of it after the controller has answered
            deleted = await delete_topics(cluster, [name, "nowhere"])
            assert codes(deleted) == {name: "ok", "nowhere": "UNKNOWN_TOPIC_OR_PARTITION"}
            while name in (await cluster.all_topics()).topics:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

        play(scenario)

    def test_records_are_trimmed(self, play: Play, name: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            await create(cluster, name, 3)
            parts = [TopicPartition(name, index) for index in range(3)]
            for at in parts:
                await fill(cluster, at, 1, 2, 3)
            results = await delete_records(cluster, {parts[0]: 2, parts[1]: -1, parts[2]: 99})
            assert results[parts[0]] == 2
            assert results[parts[1]] == 3
            assert codes(results)[str(parts[2])] == "OFFSET_OUT_OF_RANGE"
            begins = await list_offsets(cluster, dict.fromkeys(parts, EARLIEST))
            assert [begins[at].offset for at in parts] == [2, 3, 0]

        play(scenario)


class TestConfigs:
    def test_describe_set_append_and_delete(self, play: Play, name: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            await create(cluster, name, retention_ms="1000000")
            topic = Resource(ResourceType.TOPIC, name)

            async def shown(*names: str) -> list[tuple[str | None, ConfigSource]]:
                return [(entry.value, entry.source) for entry in await describe_configs(cluster, topic, names)]

            assert await shown("cleanup.policy", "retention.ms") == [
                ("delete", ConfigSource.DEFAULT_CONFIG),
                ("1000000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
            ]
            changes = [
                ConfigChange("retention.ms", Operation.DELETE),
                ConfigChange("cleanup.policy", Operation.APPEND, "compact"),
            ]
            assert codes(await alter_configs(cluster, {topic: changes}, validate_only=True)) == {f"topic {name}": "ok"}
            assert (await shown("retention.ms"))[0][0] == "1000000"
            assert codes(await alter_configs(cluster, {topic: changes})) == {f"topic {name}": "ok"}
            expected = [
                ("delete,compact", ConfigSource.DYNAMIC_TOPIC_CONFIG),
                ("604800000", ConfigSource.DEFAULT_CONFIG),
            ]
            # Apache's broker hears of a change after the controller has answered; the test's own time limit is the end.
            while await shown("cleanup.policy", "retention.ms") != expected:
                pass
            wrong = {
                topic: [ConfigChange("retention.ms", Operation.SET, "soon")],
                Resource(ResourceType.TOPIC, "nowhere"): [ConfigChange("retention.ms", Operation.SET, "1")],
            }
            assert codes(await alter_configs(cluster, wrong)) == {
                f"topic {name}": "INVALID_CONFIG",
                "topic nowhere": "UNKNOWN_TOPIC_OR_PARTITION",
            }

        play(scenario)

    def test_a_broker_and_its_synonyms(self, play: Play) -> None:
        async def scenario(cluster: Cluster) -> None:
            broker = Resource(ResourceType.BROKER, "1")
            entries = await describe_configs(cluster, broker, ["log.cleaner.threads", "node.id"], synonyms=True)
            by_name = {entry.name: entry for entry in entries}
            assert by_name["node.id"].is_read_only
            assert by_name["log.cleaner.threads"].synonyms == (
                ConfigSynonym("log.cleaner.threads", "1", ConfigSource.DEFAULT_CONFIG),
            )

        play(scenario)


def test_the_cluster_and_its_directories(play: Play, name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await create(cluster, name)
        await fill(cluster, TopicPartition(name, 0), 1)
        found = await describe_cluster(cluster)
        assert len(found.cluster_id or "") == 22
        assert [broker.node_id for broker in found.brokers] == [1]
        directories = (await describe_log_dirs(cluster))[1]
        assert not isinstance(directories, ClientError)
        sizes = {one.at: one.size_bytes for directory in directories for one in directory.replicas}
        assert sizes[TopicPartition(name, 0)] == 70

    play(scenario)


class TestProducerAndConsumer:
    @pytest.mark.parametrize("codec", list(Codec))
    @pytest.mark.parametrize("idempotence", [False, True])
    def test_every_compression_round_trips_in_order(
        self, play: Play, name: str, codec: Codec, idempotence: bool
    ) -> None:
        async def scenario(cluster: Cluster) -> None:
            await create(cluster, name, 3)
            keys = [b"key-%d" % (index % 7) for index in range(300)]
            options = ProducerOptions(compression=codec, idempotence=idempotence, batch_bytes=1000, linger_ms=0)
            async with Producer(cluster, options) as producer:
                sent = [
                    await producer.send(name, b"%d" % index, key, headers=[("n", b"%d" % index), ("none", None)])
                    for index, key in enumerate(keys)
                ]
            for key, future in zip(keys, sent, strict=True):
                assert (await future).partition == partition_for_key(key, 3)
            async with Consumer(cluster) as consumer:
                await consumer.assign(dict.fromkeys([TopicPartition(name, index) for index in range(3)], EARLIEST))
                records = []
                while len(records) < 300:
                    records += await consumer.poll(10.0, max_records=70)
            by_place = {(record.partition, record.offset): record for record in records}
            for index, future in enumerate(sent):
                placed = await future
                record = by_place[placed.partition, placed.offset]
                assert (record.value, record.key) == (b"%d" % index, keys[index])
                assert record.headers == (("n", b"%d" % index), ("none", None))

        play(scenario)

    def test_records_without_keys_stick_together_and_spread_over_time(self, play: Play, name: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            await create(cluster, name, 4)
            places: set[int] = set()
            async with Producer(cluster, ProducerOptions(linger_ms=0)) as producer:
                for _ in range(60):
                    batch = [await producer.send(name, b"x") for _ in range(3)]
                    placed = {(await future).partition for future in batch}
                    assert len(placed) == 1
                    places |= placed
            assert places == {0, 1, 2, 3}

        play(scenario)

    def test_a_batch_that_is_too_large_is_split_and_a_record_that_is_fails_alone(self, play: Play, name: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            await create(cluster, name, max_message_bytes="1000")
            async with Producer(cluster, ProducerOptions(linger_ms=1000, idempotence=True)) as producer:
                sizes = [300, 300, 300, 5000, 300, 300]
                sent = [await producer.send(name, b"x" * size) for size in sizes]
                await producer.flush()
            offsets = [None if future.exception() else future.result().offset for future in sent]
            assert offsets == [0, 1, 2, None, 3, 4]
            error = sent[3].exception()
            assert isinstance(error, BrokerError)
            assert error.code == ErrorCode.MESSAGE_TOO_LARGE

        play(scenario)

    def test_without_acknowledgement_nobody_knows_the_offset(self, play: Play, name: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            await create(cluster, name)
            async with Producer(cluster, ProducerOptions(acks=0)) as producer:
                assert (await (await producer.send(name, b"x"))).offset == -1
            async with Consumer(cluster) as consumer:
                await consumer.assign({TopicPartition(name, 0): 0})
                assert await read(consumer, 1) == [b"x"]

        play(scenario)

    def test_a_position_that_is_gone_is_reset(self, play: Play, name: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            await create(cluster, name)
            at = TopicPartition(name, 0)
            await fill(cluster, at, 1, 2, 3)
            await delete_records(cluster, {at: 2})
            async with Consumer(cluster, ConsumerOptions(offset_reset="earliest")) as consumer:
                await consumer.assign({at: 0})
                assert len(await consumer.poll(10.0)) == 1
                assert consumer.position(at) == 3
                consumer.seek(at, 2)
                assert len(await consumer.poll(10.0)) == 1
            async with Consumer(cluster, ConsumerOptions(offset_reset="none")) as consumer:
                await consumer.assign({at: 0})
                with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
                    await consumer.poll(10.0)

        play(scenario)


class TestGroups:
    def test_two_members_share_and_hand_over(self, play: Play, bootstrap: str, name: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            await create(cluster, name, 4)
            for index in range(4):
                await fill(cluster, TopicPartition(name, index), 1, 2)
            options = ConsumerOptions(group_id=name, offset_reset="earliest", heartbeat_interval_ms=100)
            async with Consumer(cluster, options) as first:
                await first.subscribe([name])
                assert len(await read(first, 8)) == 8
                assert len(first.assignment) == 4
                await self._join_second(cluster, bootstrap, first, options, name)
                while len(first.assignment) < 4:
                    await first.poll(0.1)
            committed = await fetch_offsets(cluster, name)
            assert {at: found.offset for at, found in committed.items()} == {
                TopicPartition(name, index): 2 for index in range(4)
            }

        play(scenario)

    @staticmethod
    async def _join_second(
        cluster: Cluster, bootstrap: str, first: Consumer, options: ConsumerOptions, name: str
    ) -> None:
        async with (
            Cluster(cluster.net, cluster.clock, bootstrap) as other,
            Consumer(other, options) as second,
        ):
            await second.subscribe([name])
            while len(second.assignment) != 2 or len(first.assignment) != 2:
                await asyncio.gather(first.poll(0.1), second.poll(0.1))
            described = (await describe_groups(cluster, [name]))[name]
            assert not isinstance(described, ClientError)
            assert (described.state, described.assignor, described.protocol_type) == ("Stable", "range", "consumer")
            assert {member.assignment for member in described.members} == {first.assignment, second.assignment}
            assert codes(await delete_groups(cluster, [name])) == {name: "NON_EMPTY_GROUP"}
            with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
                await commit_offsets(cluster, name, {TopicPartition(name, 0): Committed(1)})

    def test_a_group_goes_on_where_it_committed(self, play: Play, name: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            await create(cluster, name)
            at = TopicPartition(name, 0)
            await fill(cluster, at, 1, 2, 3, 4)
            options = ConsumerOptions(group_id=name, offset_reset="earliest", auto_commit_interval_ms=None)
            async with Consumer(cluster, options) as consumer:
                await consumer.subscribe([name])
                records = await consumer.poll(10.0, max_records=3)
                assert [record.offset for record in records] == [0, 1, 2]
                await consumer.commit({at: 2})
            async with Consumer(cluster, options) as consumer:
                await consumer.subscribe([name])
                assert [record.offset for record in await consumer.poll(10.0, max_records=1)] == [2]

        play(scenario)

    def test_groups_are_listed_and_their_offsets_managed(self, play: Play, name: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            await create(cluster, name, 2)
            zero, one, nine = (TopicPartition(name, index) for index in (0, 1, 9))
            committed = {zero: Committed(3, -1, "note"), one: Committed(4), nine: Committed(5)}
            assert codes(await commit_offsets(cluster, name, committed)) == {
                str(zero): "ok",
                str(one): "ok",
                str(nine): "UNKNOWN_TOPIC_OR_PARTITION",
            }
            assert await fetch_offsets(cluster, name) == {zero: Committed(3, -1, "note"), one: Committed(4)}
            assert await fetch_offsets(cluster, name, [one, nine]) == {one: Committed(4)}
            assert await fetch_offsets(cluster, f"{name}-unknown") == {}
            listed = {group.group_id: group for group in await list_groups(cluster)}
            assert (listed[name].state, listed[name].type.lower()) == ("Empty", "classic")
            assert name not in {group.group_id for group in await list_groups(cluster, ["Stable"])}
            assert codes(await delete_offsets(cluster, name, [zero])) == {str(zero): "ok"}
            assert await fetch_offsets(cluster, name) == {one: Committed(4)}
            described = await describe_groups(cluster, [name, f"{name}-unknown"])
            assert codes(described) == {name: "ok", f"{name}-unknown": "GROUP_ID_NOT_FOUND"}
            deleted = await delete_groups(cluster, [name, f"{name}-unknown"])
            assert codes(deleted) == {name: "ok", f"{name}-unknown": "GROUP_ID_NOT_FOUND"}
            assert await fetch_offsets(cluster, name) == {}

        play(scenario)

    def test_a_group_without_offsets_and_without_a_rule_where_to_begin(self, play: Play, name: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            await create(cluster, name)
            async with Consumer(cluster, ConsumerOptions(group_id=name, offset_reset="none")) as consumer:
                await consumer.subscribe([name])
                with pytest.raises(ClientError, match="has no committed offset"):
                    await consumer.poll(10.0)

        play(scenario)


def test_end_offsets_of_many(play: Play, name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await create(cluster, name, 5)
        for index in range(5):
            await fill(cluster, TopicPartition(name, index), *range(1, index + 1))
        ends = await end_offsets(cluster, [TopicPartition(name, index) for index in range(5)])
        assert [ends[TopicPartition(name, index)] for index in range(5)] == [0, 1, 2, 3, 4]

    play(scenario)
