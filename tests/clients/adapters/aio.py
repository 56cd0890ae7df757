"""aiokafka, on a loop of its own in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

import aiokafka
from aiokafka import TopicPartition
from aiokafka import errors as aio_errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from tests.clients.model import (
    HEARTBEAT_MS,
    PATIENCE_S,
    SESSION_MS,
    ConsumerOptions,
    Group,
    Partition,
    ProducerOptions,
    Record,
    Refused,
)

_ASSIGNORS: Mapping[str, type] = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class _Loop:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self.start(coroutine).result(PATIENCE_S)
        except aio_errors.BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from error

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()


def _check(code: int, text: str | None) -> None:
    if code:
        raise Refused(code, text or "")


class Aiokafka:
    name: ClassVar[str] = "aiokafka"
    lacks: ClassVar[Mapping[str, str]] = {
        "consumer protocol: uniform": "classic groups only",
        "consumer protocol: range": "classic groups only",
        "consumer protocol: static membership": "classic groups only",
        "describe log dirs": "no such call",
        "change topic configs one by one": "no such call",
        "delete a group": "no such call",
        "alter a group's offsets": "no such call",
        "delete a group's offsets": "no such call",
        "remove a static member": "no such call",
        "assignor: cooperative-sticky": "eager only",
    }

    def __init__(self, bootstrap_servers: str) -> None:
        self._base = {"bootstrap_servers": bootstrap_servers}
        self._loop = _Loop()
        self._admin = self._loop.run(self._start_admin())

    async def _start_admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(**self._base)
        await admin.start()
        return admin

    def close(self) -> None:
        self._loop.run(self._admin.close())
        self._loop.close()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        topic = NewTopic(name, partitions, 1, topic_configs=dict(config or {}))
        for _, code, text in self._loop.run(self._admin.create_topics([topic])).topic_errors:
            _check(code, text)

    def topics(self) -> set[str]:
        return set(self._loop.run(self._admin.list_topics()))

    def partition_count(self, topic: str) -> int:
        (answer,) = self._loop.run(self._admin.describe_topics([topic]))
        _check(answer["error_code"], None)
        return len(answer["partitions"])

    def create_partitions(self, topic: str, total: int) -> None:
        self._loop.run(self._admin.create_partitions({topic: NewPartitions(total)}))

    def delete_topic(self, topic: str) -> None:
        for _, code in self._loop.run(self._admin.delete_topics([topic])).topic_error_codes:
            _check(code, None)

    def delete_records(self, partition: Partition, before_offset: int) -> int:
        one = TopicPartition(*partition)
        return int(self._loop.run(self._admin.delete_records({one: RecordsToDelete(before_offset)}))[one])

    def topic_config(self, topic: str) -> dict[str, str]:
        return self._config(ConfigResource(ConfigResourceType.TOPIC, topic))

    def broker_config(self) -> dict[str, str]:
        (broker,) = self.cluster()[1]
        return self._config(ConfigResource(ConfigResourceType.BROKER, str(broker)))

    def _config(self, resource: ConfigResource) -> dict[str, str]:
        (answer,) = self._loop.run(self._admin.describe_configs([resource]))
        ((code, text, _, _, entries),) = answer.resources
        _check(code, text)
        return {entry[0]: entry[1] for entry in entries}

    def set_topic_config(self, topic: str, values: Mapping[str, str]) -> None:
        raise NotImplementedError

    def unset_topic_config(self, topic: str, name: str) -> None:
        raise NotImplementedError

    def replace_topic_config(self, topic: str, values: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(values))
        for answer in self._loop.run(self._admin.alter_configs([resource])):
            for code, text, *_ in answer.resources:
                _check(code, text)

    def cluster(self) -> tuple[str | None, set[int]]:
        answer = self._loop.run(self._admin.describe_cluster())
        return answer.get("cluster_id"), {broker["node_id"] for broker in answer["brokers"]}

    def log_sizes(self) -> dict[Partition, int]:
        raise NotImplementedError

    def groups(self) -> set[str]:
        return {group[0] for group in self._loop.run(self._admin.list_consumer_groups())}

    def group(self, group: str) -> Group:
        (answer,) = self._loop.run(self._admin.describe_consumer_groups([group]))
        ((code, _, state, _, protocol, members, *_),) = answer.groups
        _check(code, None)
        return Group(state=state, protocol=protocol, members=tuple(_assigned(member[-1]) for member in members))

    def delete_group(self, group: str) -> None:
        raise NotImplementedError

    def group_offsets(self, group: str) -> dict[Partition, int]:
        answer = self._loop.run(self._admin.list_consumer_group_offsets(group))
        return {tuple(partition): committed.offset for partition, committed in answer.items()}

    def alter_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        raise NotImplementedError

    def delete_group_offsets(self, group: str, partition: Partition) -> None:
        raise NotImplementedError

    def remove_static_member(self, group: str, instance: str) -> None:
        raise NotImplementedError

    def produce(self, topic: str, records: Sequence[Record], options: ProducerOptions) -> list[int]:
        return self._loop.run(self._produce(topic, records, options))

    async def _produce(self, topic: str, records: Sequence[Record], options: ProducerOptions) -> list[int]:
        producer = aiokafka.AIOKafkaProducer(
            **self._base,
            compression_type=None if options.compression == "none" else options.compression,
            acks="all" if options.acks == "all" else int(options.acks),
            enable_idempotence=options.idempotent,
            max_request_size=options.request_bytes_max,
            linger_ms=20,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            places = await asyncio.gather(*futures)
        finally:
            await producer.stop()
        return [-1 if place is None else place.offset for place in places]

    def consumer(self, options: ConsumerOptions) -> AiokafkaConsumer:
        return AiokafkaConsumer(self._loop, self._base, options)


def _assigned(assignment: bytes) -> frozenset[Partition]:
    if not assignment:
        return frozenset()
    decoded = ConsumerProtocolMemberAssignment.decode(assignment)
    return frozenset((topic, partition) for topic, partitions in decoded.assignment for partition in partitions)


class AiokafkaConsumer:
    def __init__(self, loop: _Loop, base: Mapping[str, str], options: ConsumerOptions) -> None:
        self._loop = loop
        self._consumer = loop.run(self._start(base, options))
        self._polling: Future[Any] | None = None

    @staticmethod
    async def _start(base: Mapping[str, str], options: ConsumerOptions) -> aiokafka.AIOKafkaConsumer:
        more: dict[str, Any] = {}
        if options.assignor is not None:
            more["partition_assignment_strategy"] = [_ASSIGNORS[options.assignor]]
        consumer = aiokafka.AIOKafkaConsumer(
            **base,
            **more,
            group_id=options.group,
            group_instance_id=options.instance,
            auto_offset_reset=options.reset,
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
            fetch_max_wait_ms=100,
            isolation_level="read_committed" if options.committed else "read_uncommitted",
        )
        await consumer.start()
        return consumer

    async def _call(self, function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    def assign(self, *partitions: Partition) -> None:
        self._loop.run(self._call(self._consumer.assign, [TopicPartition(*partition) for partition in partitions]))

    def subscribe(self, *topics: str) -> None:
        self._loop.run(self._call(self._consumer.subscribe, list(topics)))

    def seek(self, partition: Partition, offset: int) -> None:
        self._loop.run(self._call(self._consumer.seek, TopicPartition(*partition), offset))

    def seek_to_beginning(self, partition: Partition) -> None:
        self._loop.run(self._consumer.seek_to_beginning(TopicPartition(*partition)))

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        one = TopicPartition(*partition)
        answer = self._loop.run(self._consumer.offsets_for_times({one: timestamp_ms}))[one]
        return None if answer is None else answer.offset

    def bounds(self, partition: Partition) -> tuple[int, int]:
        one = TopicPartition(*partition)
        low = self._loop.run(self._consumer.beginning_offsets([one]))[one]
        return low, self._loop.run(self._consumer.end_offsets([one]))[one]

    def poll(self) -> list[Record]:
        # While the group rebalances getmany waits longer than it was told; the other members, polled by the same test,
        # would never come to their turn.
        if self._polling is None:
            self._polling = self._loop.start(self._consumer.getmany(timeout_ms=100))
        try:
            answer = self._polling.result(0.2)
        except TimeoutError:
            return []
        self._polling = None
        return [
            Record(
                value=message.value,
                key=message.key,
                headers=tuple(tuple(header) for header in message.headers),
                partition=message.partition,
                timestamp_ms=message.timestamp,
                offset=message.offset,
                append_time=message.timestamp_type == 1,
            )
            for messages in answer.values()
            for message in messages
        ]

    def assignment(self) -> set[Partition]:
        return {tuple(partition) for partition in self._consumer.assignment()}

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        self._loop.run(
            self._consumer.commit({TopicPartition(*partition): offset for partition, offset in offsets.items()})
        )

    def committed(self, partition: Partition) -> int | None:
        return self._loop.run(self._consumer.committed(TopicPartition(*partition)))

    def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
        self._loop.run(self._consumer.stop())
