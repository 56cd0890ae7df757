"""kafka-python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar

import kafka
from kafka import errors as kafka_errors
from kafka.admin import AlterConfigOp, ConfigFilterType, ConfigResource, ConfigResourceType, MemberToRemove
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.structs import OffsetAndMetadata, TopicPartition

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
    "cooperative-sticky": CooperativeStickyAssignor,
}


class _Refusals:
    """Kafka's error codes as the scenarios know them."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, kafka_errors.BrokerResponseError):
            raise Refused(error.errno, str(error)) from error


class KafkaPython:
    name: ClassVar[str] = "kafka-python"
    lacks: ClassVar[Mapping[str, str]] = {
        "consumer protocol: uniform": "classic groups only",
        "consumer protocol: range": "classic groups only",
        "consumer protocol: static membership": "classic groups only",
        "headers without a value": "refused by the library",
    }

    def __init__(self, bootstrap_servers: str) -> None:
        self._base: dict[str, Any] = {"bootstrap_servers": bootstrap_servers}
        self._admin = kafka.KafkaAdminClient(**self._base)

    def close(self) -> None:
        self._admin.close()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        with _Refusals():
            self._admin.create_topics({name: {"num_partitions": partitions, "configs": dict(config or {})}})

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def partition_count(self, topic: str) -> int:
        (answer,) = self._admin.describe_topics([topic])
        if answer["error_code"]:
            raise Refused(answer["error_code"])
        return len(answer["partitions"])

    def create_partitions(self, topic: str, total: int) -> None:
        with _Refusals():
            self._admin.create_partitions({topic: total})

    def delete_topic(self, topic: str) -> None:
        with _Refusals():
            self._admin.delete_topics([topic])

    def delete_records(self, partition: Partition, before_offset: int) -> int:
        with _Refusals():
            answer = self._admin.delete_records({TopicPartition(*partition): before_offset})
        return int(answer[TopicPartition(*partition)]["low_watermark"])

    def topic_config(self, topic: str) -> dict[str, str]:
        return self._config(ConfigResource(ConfigResourceType.TOPIC, topic))

    def broker_config(self) -> dict[str, str]:
        (broker,) = self.cluster()[1]
        return self._config(ConfigResource(ConfigResourceType.BROKER, str(broker)))

    def _config(self, resource: ConfigResource) -> dict[str, str]:
        with _Refusals():
            answer = self._admin.describe_configs([resource], config_filter=ConfigFilterType.ALL)
        entries = answer[resource.resource_type.name.lower()][resource.name]
        return {name: entry["value"] for name, entry in entries.items()}

    def set_topic_config(self, topic: str, values: Mapping[str, str]) -> None:
        self._alter(topic, {name: (AlterConfigOp.SET, value) for name, value in values.items()}, incremental=True)

    def unset_topic_config(self, topic: str, name: str) -> None:
        self._alter(topic, {name: (AlterConfigOp.DELETE, None)}, incremental=True)

    def replace_topic_config(self, topic: str, values: Mapping[str, str]) -> None:
        # alter_configs would first read the other values and send them along; a reset of the whole topic does not.
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {})
        answer = self._admin.reset_configs([resource], incremental=False)
        assert answer["topic"][topic] == "OK", answer
        self._alter(topic, dict(values), incremental=False)

    def _alter(self, topic: str, configs: dict[str, Any], *, incremental: bool) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs)
        answer = self._admin.alter_configs([resource], incremental=incremental, raise_on_unknown=False)["topic"][topic]
        if answer != "OK":
            # The library hands out the text of the error only: "[Error 40] InvalidConfigurationError: ...".
            raise Refused(int(answer.split("]")[0].split()[-1]), answer)

    def cluster(self) -> tuple[str | None, set[int]]:
        answer = self._admin.describe_cluster()
        return answer["cluster_id"], {broker["broker_id"] for broker in answer["brokers"]}

    def log_sizes(self) -> dict[Partition, int]:
        return {
            (topic["name"], partition["partition_index"]): partition["partition_size"]
            for broker in self._admin.describe_log_dirs()
            for directory in broker["log_dirs"]
            for topic in directory["topics"]
            for partition in topic["partitions"]
        }

    def groups(self) -> set[str]:
        return {group["group_id"] for group in self._admin.list_groups()}

    def group(self, group: str) -> Group:
        answer = self._admin.describe_groups([group])[group]
        assert answer["error"] is None, answer
        return Group(
            state=answer["group_state"],
            protocol=answer["protocol_data"],
            members=tuple(_assigned(member["member_assignment"]) for member in answer["members"]),
        )

    def delete_group(self, group: str) -> None:
        answer = self._admin.delete_groups([group])[group]
        if answer != "OK":
            raise Refused(getattr(kafka_errors, answer).errno, answer)

    def group_offsets(self, group: str) -> dict[Partition, int]:
        answer = self._admin.list_group_offsets(group)[group]
        return {tuple(partition): committed.offset for partition, committed in answer.items()}

    def alter_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        wanted = {
            TopicPartition(*partition): OffsetAndMetadata(offset, "", None) for partition, offset in offsets.items()
        }
        self._check(self._admin.alter_group_offsets(group, wanted))

    def delete_group_offsets(self, group: str, partition: Partition) -> None:
        with _Refusals():
            answer = self._admin.delete_group_offsets(group, [TopicPartition(*partition)])
        self._check(answer)

    def remove_static_member(self, group: str, instance: str) -> None:
        with _Refusals():
            answer = self._admin.remove_group_members(group, [MemberToRemove(group_instance_id=instance)])
        self._check(answer)

    @staticmethod
    def _check(answers: Mapping[Any, type[kafka_errors.KafkaError]]) -> None:
        for error in answers.values():
            if error is not kafka_errors.NoError:
                raise Refused(error.errno, error.__name__)

    def produce(self, topic: str, records: Sequence[Record], options: ProducerOptions) -> list[int]:
        producer = kafka.KafkaProducer(
            **self._base,
            compression_type=None if options.compression == "none" else options.compression,
            acks="all" if options.acks == "all" else int(options.acks),
            enable_idempotence=options.idempotent,
            max_request_size=options.request_bytes_max,
            linger_ms=20,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(PATIENCE_S)
            with _Refusals():
                return [future.get(PATIENCE_S).offset for future in futures]
        finally:
            producer.close()

    def consumer(self, options: ConsumerOptions) -> KafkaPythonConsumer:
        return KafkaPythonConsumer(self._base, options)


def _assigned(assignment: Any) -> frozenset[Partition]:
    return frozenset(
        (one["topic"], partition) for one in assignment["assigned_partitions"] for partition in one["partitions"]
    )


class KafkaPythonConsumer:
    """A thread of its own per consumer, as users run it: polled in turns with short waits, two members of a cooperative
    group interrupt each other's join for ever (the same against Apache Kafka)."""

    def __init__(self, base: Mapping[str, Any], options: ConsumerOptions) -> None:
        more: dict[str, Any] = {}
        if options.assignor is not None:
            more["partition_assignment_strategy"] = [_ASSIGNORS[options.assignor]]
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kafka-python")
        self._polling: Future[Any] | None = None
        self._consumer = kafka.KafkaConsumer(
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

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        with _Refusals():
            return self._thread.submit(function, *arguments, **options).result(PATIENCE_S)

    def assign(self, *partitions: Partition) -> None:
        self._call(self._consumer.assign, [TopicPartition(*partition) for partition in partitions])

    def subscribe(self, *topics: str) -> None:
        self._call(self._consumer.subscribe, list(topics))

    def seek(self, partition: Partition, offset: int) -> None:
        self._call(self._consumer.seek, TopicPartition(*partition), offset)

    def seek_to_beginning(self, partition: Partition) -> None:
        self._call(self._consumer.seek_to_beginning, TopicPartition(*partition))

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        one = TopicPartition(*partition)
        answer = self._call(self._consumer.offsets_for_times, {one: timestamp_ms})[one]
        return None if answer is None else answer.offset

    def bounds(self, partition: Partition) -> tuple[int, int]:
        one = TopicPartition(*partition)
        low = self._call(self._consumer.beginning_offsets, [one])[one]
        return low, self._call(self._consumer.end_offsets, [one])[one]

    def poll(self) -> list[Record]:
        if self._polling is None:
            self._polling = self._thread.submit(self._consumer.poll, timeout_ms=500)
        try:
            answer = self._polling.result(0.1)
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
        self._call(
            self._consumer.commit,
            {TopicPartition(*partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()},
        )

    def committed(self, partition: Partition) -> int | None:
        return self._call(self._consumer.committed, TopicPartition(*partition))

    def close(self) -> None:
        self._call(self._consumer.close)
        self._thread.shutdown()
