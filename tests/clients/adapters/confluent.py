"""confluent-kafka (librdkafka)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

import confluent_kafka as ck
from confluent_kafka import admin as cka

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

_TOPIC = cka.ConfigResource.Type.TOPIC
_BROKER = cka.ConfigResource.Type.BROKER


def _refused(error: ck.KafkaException) -> Refused:
    inner = error.args[0]
    return Refused(inner.code(), inner.str())


def _result(future: Future[Any]) -> Any:
    try:
        return future.result(PATIENCE_S)
    except ck.KafkaException as error:
        raise _refused(error) from error


def _only(futures: Mapping[Any, Future[Any]]) -> Any:
    (future,) = futures.values()
    return _result(future)


class ConfluentKafka:
    name: ClassVar[str] = "confluent-kafka"
    lacks: ClassVar[Mapping[str, str]] = {
        "describe log dirs": "no such call",
        "delete a group's offsets": "no such call",
        "remove a static member": "no such call",
        "assignor: sticky": "librdkafka has the cooperative one only",
    }

    def __init__(self, bootstrap_servers: str) -> None:
        self._base = {"bootstrap.servers": bootstrap_servers}
        self._admin = cka.AdminClient(self._base)

    def close(self) -> None:
        del self._admin

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        _only(self._admin.create_topics([cka.NewTopic(name, partitions, config=dict(config or {}))]))

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=PATIENCE_S).topics)

    def partition_count(self, topic: str) -> int:
        return len(_only(self._admin.describe_topics(ck.TopicCollection([topic]))).partitions)

    def create_partitions(self, topic: str, total: int) -> None:
        _only(self._admin.create_partitions([cka.NewPartitions(topic, total)]))

    def delete_topic(self, topic: str) -> None:
        _only(self._admin.delete_topics([topic]))

    def delete_records(self, partition: Partition, before_offset: int) -> int:
        return int(_only(self._admin.delete_records([ck.TopicPartition(*partition, before_offset)])).low_watermark)

    def topic_config(self, topic: str) -> dict[str, str]:
        return self._config(cka.ConfigResource(_TOPIC, topic))

    def broker_config(self) -> dict[str, str]:
        (broker,) = self.cluster()[1]
        return self._config(cka.ConfigResource(_BROKER, str(broker)))

    def _config(self, resource: cka.ConfigResource) -> dict[str, str]:
        return {name: entry.value for name, entry in _only(self._admin.describe_configs([resource])).items()}

    def set_topic_config(self, topic: str, values: Mapping[str, str]) -> None:
        self._alter(topic, cka.AlterConfigOpType.SET, values)

    def unset_topic_config(self, topic: str, name: str) -> None:
        self._alter(topic, cka.AlterConfigOpType.DELETE, {name: None})

    def _alter(self, topic: str, operation: cka.AlterConfigOpType, values: Mapping[str, str | None]) -> None:
        entries = [cka.ConfigEntry(name, value, incremental_operation=operation) for name, value in values.items()]
        resource = cka.ConfigResource(_TOPIC, topic, incremental_configs=entries)
        _only(self._admin.incremental_alter_configs([resource]))

    def replace_topic_config(self, topic: str, values: Mapping[str, str]) -> None:
        _only(self._admin.alter_configs([cka.ConfigResource(_TOPIC, topic, set_config=dict(values))]))

    def cluster(self) -> tuple[str | None, set[int]]:
        answer = _result(self._admin.describe_cluster())
        return answer.cluster_id, {node.id for node in answer.nodes}

    def log_sizes(self) -> dict[Partition, int]:
        raise NotImplementedError

    def groups(self) -> set[str]:
        return {group.group_id for group in _result(self._admin.list_consumer_groups()).valid}

    def group(self, group: str) -> Group:
        answer = _only(self._admin.describe_consumer_groups([group]))
        return Group(
            state=answer.state.name.title().replace("_", ""),
            protocol=answer.partition_assignor,
            members=tuple(
                frozenset((one.topic, one.partition) for one in member.assignment.topic_partitions)
                for member in answer.members
            ),
        )

    def delete_group(self, group: str) -> None:
        _only(self._admin.delete_consumer_groups([group]))

    def group_offsets(self, group: str) -> dict[Partition, int]:
        answer = _only(self._admin.list_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(group)]))
        return {(one.topic, one.partition): one.offset for one in answer.topic_partitions}

    def alter_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        partitions = [ck.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        answer = _only(self._admin.alter_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(group, partitions)]))
        for one in answer.topic_partitions:
            if one.error is not None:
                raise Refused(one.error.code(), one.error.str())

    def delete_group_offsets(self, group: str, partition: Partition) -> None:
        raise NotImplementedError

    def remove_static_member(self, group: str, instance: str) -> None:
        raise NotImplementedError

    def produce(self, topic: str, records: Sequence[Record], options: ProducerOptions) -> list[int]:
        producer = ck.Producer(
            {
                **self._base,
                "compression.type": options.compression,
                "acks": options.acks,
                "enable.idempotence": options.idempotent,
                "message.max.bytes": options.request_bytes_max,
                "linger.ms": 20,
            }
        )
        offsets = [-1] * len(records)
        errors: list[ck.KafkaError] = []

        def deliver(index: int, error: ck.KafkaError | None, message: ck.Message) -> None:
            if error is not None:
                errors.append(error)
            else:
                offset = message.offset()
                offsets[index] = -1 if offset is None or offset < 0 else offset

        for index, record in enumerate(records):
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                headers=list(record.headers),
                timestamp=record.timestamp_ms or 0,
                on_delivery=lambda error, message, index=index: deliver(index, error, message),
            )
        left = producer.flush(PATIENCE_S)
        assert left == 0, f"{left} records were not delivered"
        if errors:
            raise Refused(errors[0].code(), errors[0].str())
        return offsets

    def consumer(self, options: ConsumerOptions) -> ConfluentConsumer:
        return ConfluentConsumer(self._base, options)


class ConfluentConsumer:
    def __init__(self, base: Mapping[str, str], options: ConsumerOptions) -> None:
        config: dict[str, Any] = {
            **base,
            "group.id": options.group or "assigned-only",
            "auto.offset.reset": options.reset,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "isolation.level": "read_committed" if options.committed else "read_uncommitted",
        }
        if options.remote_assignor is not None:
            config |= {"group.protocol": "consumer", "group.remote.assignor": options.remote_assignor}
        else:
            config |= {"heartbeat.interval.ms": HEARTBEAT_MS, "session.timeout.ms": SESSION_MS}
        if options.assignor is not None:
            config["partition.assignment.strategy"] = options.assignor
        if options.instance is not None:
            config["group.instance.id"] = options.instance
        self._consumer = ck.Consumer(config)

    def assign(self, *partitions: Partition) -> None:
        self._consumer.assign([ck.TopicPartition(*partition) for partition in partitions])

    def subscribe(self, *topics: str) -> None:
        self._consumer.subscribe(list(topics))

    def seek(self, partition: Partition, offset: int) -> None:
        self._consumer.seek(ck.TopicPartition(*partition, offset))

    def seek_to_beginning(self, partition: Partition) -> None:
        self.seek(partition, ck.OFFSET_BEGINNING)

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        (answer,) = self._consumer.offsets_for_times([ck.TopicPartition(*partition, timestamp_ms)], timeout=PATIENCE_S)
        return answer.offset if answer.offset >= 0 else None

    def bounds(self, partition: Partition) -> tuple[int, int]:
        low, high = self._consumer.get_watermark_offsets(ck.TopicPartition(*partition), timeout=PATIENCE_S)
        return low, high

    def poll(self) -> list[Record]:
        records = []
        for message in self._consumer.consume(500, timeout=0.1):
            if message.error() is not None:
                raise Refused(message.error().code(), message.error().str())
            kind, timestamp_ms = message.timestamp()
            records.append(
                Record(
                    value=message.value(),
                    key=message.key(),
                    headers=tuple(message.headers() or ()),
                    partition=message.partition(),
                    timestamp_ms=timestamp_ms,
                    offset=message.offset(),
                    append_time=kind == ck.TIMESTAMP_LOG_APPEND_TIME,
                )
            )
        return records

    def assignment(self) -> set[Partition]:
        return {(one.topic, one.partition) for one in self._consumer.assignment()}

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        partitions = [ck.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        try:
            self._consumer.commit(offsets=partitions, asynchronous=False)
        except ck.KafkaException as error:
            raise _refused(error) from error

    def committed(self, partition: Partition) -> int | None:
        (answer,) = self._consumer.committed([ck.TopicPartition(*partition)], timeout=PATIENCE_S)
        return answer.offset if answer.offset >= 0 else None

    def close(self) -> None:
        self._consumer.close()
