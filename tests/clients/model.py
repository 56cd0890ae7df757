"""What the scenarios ask of a client, whichever library it is: plain values in, plain values out.

An adapter translates to one library's own calls and adds nothing: no retries, no defaults of its own beyond short
heartbeats (so that a rebalance is noticed at once). A call that the library does not have is named in `lacks`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeVar

Partition = tuple[str, int]
Header = tuple[str, bytes | None]
ResultT = TypeVar("ResultT")

COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
HEARTBEAT_MS: Final = 100
SESSION_MS: Final = 10_000
PATIENCE_S: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Record:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int = 0
    timestamp_ms: int | None = None
    offset: int | None = None
    append_time: bool = False


@dataclass(frozen=True, kw_only=True)
class ProducerOptions:
    compression: str = "none"
    acks: str = "all"
    idempotent: bool = False
    request_bytes_max: int = 1_048_576


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions:
    group: str | None = None
    reset: str = "earliest"
    assignor: str | None = None
    remote_assignor: str | None = None
    """Of the coordinator: the consumer protocol (KIP-848) instead of the classic one."""
    instance: str | None = None
    committed: bool = False
    """Reads records of committed transactions only."""


@dataclass(frozen=True, kw_only=True)
class Group:
    state: str
    protocol: str
    members: tuple[frozenset[Partition], ...]


class Refused(Exception):
    """The broker answered with an error code; the number is the protocol's."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(f"error code {code}: {text}")
        self.code = code


class Consumer(Protocol):
    def assign(self, *partitions: Partition) -> None: ...
    def subscribe(self, *topics: str) -> None: ...
    def seek(self, partition: Partition, offset: int) -> None: ...
    def seek_to_beginning(self, partition: Partition) -> None: ...
    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None: ...
    def bounds(self, partition: Partition) -> tuple[int, int]: ...
    def poll(self) -> list[Record]:
        """What has arrived, after a short wait at most; drives the group's protocol too."""

    def assignment(self) -> set[Partition]: ...
    def commit(self, offsets: Mapping[Partition, int]) -> None: ...
    def committed(self, partition: Partition) -> int | None: ...
    def close(self) -> None: ...


class Client(Protocol):
    name: ClassVar[str]
    lacks: ClassVar[Mapping[str, str]]
    """Feature -> why the library cannot be asked for it."""

    def __init__(self, bootstrap_servers: str) -> None: ...
    def close(self) -> None: ...

    # topics
    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None: ...
    def topics(self) -> set[str]: ...
    def partition_count(self, topic: str) -> int: ...
    def create_partitions(self, topic: str, total: int) -> None: ...
    def delete_topic(self, topic: str) -> None: ...
    def delete_records(self, partition: Partition, before_offset: int) -> int:
        """The low watermark after it."""

    # configs
    def topic_config(self, topic: str) -> dict[str, str]: ...
    def broker_config(self) -> dict[str, str]: ...
    def set_topic_config(self, topic: str, values: Mapping[str, str]) -> None:
        """IncrementalAlterConfigs: the other values stay."""

    def unset_topic_config(self, topic: str, name: str) -> None: ...
    def replace_topic_config(self, topic: str, values: Mapping[str, str]) -> None:
        """AlterConfigs: the other values go."""

    # cluster
    def cluster(self) -> tuple[str | None, set[int]]:
        """The cluster's id and the brokers' ids."""

    def log_sizes(self) -> dict[Partition, int]: ...

    # groups
    def groups(self) -> set[str]: ...
    def group(self, group: str) -> Group: ...
    def delete_group(self, group: str) -> None: ...
    def group_offsets(self, group: str) -> dict[Partition, int]: ...
    def alter_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None: ...
    def delete_group_offsets(self, group: str, partition: Partition) -> None: ...

    def remove_static_member(self, group: str, instance: str) -> None: ...

    # records
    def produce(self, topic: str, records: Sequence[Record], options: ProducerOptions) -> list[int]:
        """The offsets the broker gave, in the order of the records (-1 each with acks=0)."""

    def consumer(self, options: ConsumerOptions) -> Consumer: ...


def wait_for(what: str, check: Callable[[], ResultT], *, patience_s: float = PATIENCE_S) -> ResultT:
    """The first true answer of `check`, which must itself wait a little (a poll, a request)."""
    deadline = time.monotonic() + patience_s
    while not (answer := check()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {patience_s:.0f} s: {what}")
    return answer


def read(consumer: Consumer, count: int) -> list[Record]:
    """At least `count` records, by offset within each partition as they came."""
    records: list[Record] = []

    def enough() -> bool:
        records.extend(consumer.poll())
        return len(records) >= count

    wait_for(f"{count} records", enough)
    return records


def values(records: Iterable[Record]) -> list[bytes | None]:
    return [record.value for record in records]
