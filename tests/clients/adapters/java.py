"""Apache Kafka's own clients and tools, in one JVM that java/driver lets us steer."""

from __future__ import annotations

import json
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests.clients.model import (
    HEARTBEAT_MS,
    SESSION_MS,
    ConsumerOptions,
    Group,
    Partition,
    ProducerOptions,
    Record,
    Refused,
)
from tools import apache

_SOURCES = Path(__file__).parent.parent / "java" / "driver"
_ASSIGNORS: Mapping[str, str] = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


def base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


class Jvm:
    """One request at a time over the driver's standard streams."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._process = subprocess.Popen(
            apache.java("Driver", bootstrap_servers, sources=_SOURCES),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, operation: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": operation, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the JVM ended with {self._process.wait()} during {operation}")
        answer = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"], answer["text"])
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        return answer["ok"]

    def close(self) -> None:
        self._process.communicate(timeout=30)


class Java:
    name: ClassVar[str] = "Java"
    lacks: ClassVar[Mapping[str, str]] = {
        "replace topic configs": "removed in Kafka 4",
    }

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._jvm = Jvm(bootstrap_servers)

    @property
    def jvm(self) -> Jvm:
        return self._jvm

    def close(self) -> None:
        self._jvm.close()

    def tool(self, main: str, *arguments: str, stdin: str = "") -> tuple[int, str]:
        """One of Apache's command line tools, in the same JVM; its exit code and all that it printed."""
        code, text = self._jvm.call("tool", main=main, arguments=arguments, stdin=stdin)
        return code, text

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        self._jvm.call("create_topic", topic=name, partitions=partitions, config=dict(config or {}))

    def topics(self) -> set[str]:
        return set(self._jvm.call("topics"))

    def partition_count(self, topic: str) -> int:
        return int(self._jvm.call("partition_count", topic=topic))

    def create_partitions(self, topic: str, total: int) -> None:
        self._jvm.call("create_partitions", topic=topic, total=total)

    def delete_topic(self, topic: str) -> None:
        self._jvm.call("delete_topic", topic=topic)

    def delete_records(self, partition: Partition, before_offset: int) -> int:
        return int(self._jvm.call("delete_records", partition=partition, before_offset=before_offset))

    def topic_config(self, topic: str) -> dict[str, str]:
        return dict(self._jvm.call("config", type="TOPIC", name=topic))

    def broker_config(self) -> dict[str, str]:
        (broker,) = self.cluster()[1]
        return dict(self._jvm.call("config", type="BROKER", name=str(broker)))

    def set_topic_config(self, topic: str, values: Mapping[str, str]) -> None:
        self._jvm.call("alter_config", type="TOPIC", name=topic, set=dict(values), unset=[])

    def unset_topic_config(self, topic: str, name: str) -> None:
        self._jvm.call("alter_config", type="TOPIC", name=topic, set={}, unset=[name])

    def replace_topic_config(self, topic: str, values: Mapping[str, str]) -> None:
        raise NotImplementedError

    def cluster(self) -> tuple[str | None, set[int]]:
        cluster, brokers = self._jvm.call("cluster")
        return cluster, set(brokers)

    def log_sizes(self) -> dict[Partition, int]:
        return {(topic, partition): size for topic, partition, size in self._jvm.call("log_sizes")}

    def groups(self) -> set[str]:
        return set(self._jvm.call("groups"))

    def group(self, group: str) -> Group:
        state, protocol, members = self._jvm.call("group", group=group)
        return Group(
            state=state,
            protocol=protocol,
            members=tuple(frozenset((topic, partition) for topic, partition in member) for member in members),
        )

    def delete_group(self, group: str) -> None:
        self._jvm.call("delete_group", group=group)

    def group_offsets(self, group: str) -> dict[Partition, int]:
        return {(topic, partition): offset for topic, partition, offset in self._jvm.call("group_offsets", group=group)}

    def alter_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        self._jvm.call("alter_group_offsets", group=group, offsets=_triples(offsets))

    def delete_group_offsets(self, group: str, partition: Partition) -> None:
        self._jvm.call("delete_group_offsets", group=group, partition=partition)

    def remove_static_member(self, group: str, instance: str) -> None:
        self._jvm.call("remove_static_member", group=group, instance=instance)

    def produce(self, topic: str, records: Sequence[Record], options: ProducerOptions) -> list[int]:
        config = {
            "compression.type": options.compression,
            "acks": options.acks,
            "enable.idempotence": str(options.idempotent).lower(),
            "max.request.size": str(options.request_bytes_max),
            "linger.ms": "20",
        }
        plain = [
            {
                "value": base64(record.value),
                "key": base64(record.key),
                "headers": [[name, base64(value)] for name, value in record.headers],
                "partition": record.partition,
                "timestamp_ms": record.timestamp_ms,
            }
            for record in records
        ]
        return list(self._jvm.call("produce", topic=topic, config=config, records=plain))

    def consumer(self, options: ConsumerOptions) -> JavaConsumer:
        return JavaConsumer(self._jvm, options)


def _triples(offsets: Mapping[Partition, int]) -> list[tuple[str, int, int]]:
    return [(*partition, offset) for partition, offset in offsets.items()]


class JavaConsumer:
    def __init__(self, jvm: Jvm, options: ConsumerOptions, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are Java's own, beside or in place of what the options say."""
        config = {
            "auto.offset.reset": options.reset,
            "enable.auto.commit": "false",
            "fetch.max.wait.ms": "100",
            "isolation.level": "read_committed" if options.committed else "read_uncommitted",
        }
        if options.remote_assignor is not None:
            config |= {"group.protocol": "consumer", "group.remote.assignor": options.remote_assignor}
        else:
            config |= {"heartbeat.interval.ms": str(HEARTBEAT_MS), "session.timeout.ms": str(SESSION_MS)}
        if options.group is not None:
            config["group.id"] = options.group
        if options.assignor is not None:
            config["partition.assignment.strategy"] = _ASSIGNORS[options.assignor]
        if options.instance is not None:
            config["group.instance.id"] = options.instance
        config.update(settings or {})
        if config.get("group.protocol") == "consumer":
            for name in ("heartbeat.interval.ms", "session.timeout.ms"):
                config.pop(name, None)  # the broker decides; Java refuses them
        self._jvm = jvm
        self.number = jvm.call("consumer", config=config)

    def _call(self, operation: str, **arguments: Any) -> Any:
        return self._jvm.call(operation, consumer=self.number, **arguments)

    def assign(self, *partitions: Partition) -> None:
        self._call("assign", partitions=partitions)

    def subscribe(self, *topics: str) -> None:
        self._call("subscribe", topics=topics)

    def seek(self, partition: Partition, offset: int) -> None:
        self._call("seek", partition=partition, offset=offset)

    def seek_to_beginning(self, partition: Partition) -> None:
        self._call("seek_to_beginning", partition=partition)

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        return self._call("offset_for_time", partition=partition, timestamp_ms=timestamp_ms)

    def bounds(self, partition: Partition) -> tuple[int, int]:
        low, high = self._call("bounds", partition=partition)
        return low, high

    def poll(self) -> list[Record]:
        return [
            Record(
                value=_bytes(record["value"]),
                key=_bytes(record["key"]),
                headers=tuple((name, _bytes(value)) for name, value in record["headers"]),
                partition=record["partition"],
                timestamp_ms=record["timestamp_ms"],
                offset=record["offset"],
                append_time=record["append_time"],
            )
            for record in self._call("poll")
        ]

    def assignment(self) -> set[Partition]:
        return {(topic, partition) for topic, partition in self._call("assignment")}

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        self._call("commit", offsets=_triples(offsets))

    def committed(self, partition: Partition) -> int | None:
        return self._call("committed", partition=partition)

    def close(self) -> None:
        self._call("close")
