"""The cluster's metadata as readers see it: immutable, replaced as a whole when a batch of records is committed.

Who wants to react to a change subscribes to deltas (publisher.py); who wants to know something asks the image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from tidelog.metadata.carried import Identity
from tidelog.protocol.uuids import ZERO_UUID

NO_LEADER: Final = -1
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
GROUP_RESOURCE: Final = 32
CLUSTER_DEFAULT: Final = ""

_EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    directories: tuple[bytes, ...] = ()
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    eligible_leaders: tuple[int, ...] = ()
    last_known_leaders: tuple[int, ...] = ()
    leader_recovery_state: int = 0

    def directory_of(self, broker_id: int) -> bytes:
        """The log directory of one of the replicas, zeros when nobody has said yet."""
        place = self.replicas.index(broker_id)
        return self.directories[place] if place < len(self.directories) else ZERO_UUID


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionState] = field(default_factory=lambda: _EMPTY)


@dataclass(frozen=True, slots=True)
class Endpoint:
    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    broker_id: int
    epoch: int
    incarnation_id: bytes = ZERO_UUID
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[tuple[str, int, int], ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerImage:
    controller_id: int
    incarnation_id: bytes = ZERO_UUID
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    offset: int = -1
    """The last record applied."""
    epoch: int = 0
    topics: Mapping[str, TopicImage] = field(default_factory=lambda: _EMPTY)
    topic_names: Mapping[bytes, str] = field(default_factory=lambda: _EMPTY)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=lambda: _EMPTY)
    brokers: Mapping[int, BrokerImage] = field(default_factory=lambda: _EMPTY)
    controllers: Mapping[int, ControllerImage] = field(default_factory=lambda: _EMPTY)
    features: Mapping[str, int] = field(default_factory=lambda: _EMPTY)
    next_producer_id: int = 0
    carried: Mapping[Identity, Any] = field(default_factory=lambda: _EMPTY)
    """Records that nothing acts on yet."""
    held: tuple[tuple[Any, int], ...] | None = None
    """Records of a metadata transaction that has begun, with their offsets; they count when it ends. None is none."""

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, index: int) -> PartitionState | None:
        image = self.topics.get(topic)
        return None if image is None else image.partitions.get(index)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.configs.get((resource_type, name), _EMPTY)

    def live_brokers(self) -> list[BrokerImage]:
        return [broker for _, broker in sorted(self.brokers.items()) if not broker.fenced]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataDelta:
    """What one committed batch changed; `before` and `after` hold the rest."""

    before: MetadataImage
    after: MetadataImage
    created: tuple[TopicImage, ...] = ()
    deleted: tuple[TopicImage, ...] = ()
    changed: tuple[TopicImage, ...] = ()
    """Topics that were there before, with the partitions they have now."""
    configs: frozenset[tuple[int, str]] = frozenset()
    brokers_changed: bool = False
    features_changed: bool = False
