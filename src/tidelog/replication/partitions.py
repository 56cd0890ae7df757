"""All partitions of this node: created, changed and deleted as metadata says; retention and checkpoints on demand.

Owns the map from names and ids to partitions. It decides nothing: metadata deltas come in, logs follow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from random import Random

from tidelog.kernel.errors import DiskError, DiskFullError
from tidelog.kernel.ports import Clock
from tidelog.log.directory import LogDirectory
from tidelog.metadata.config import BrokerValues
from tidelog.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataDelta, MetadataImage, TopicImage
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.log_config import log_config
from tidelog.replication.partition import Partition
from tidelog.replication.syncing import SyncRounds

_REMOVALS_PER_ROUND = 100
_log = logging.getLogger("tidelog.partitions")


class Partitions:
    def __init__(
        self,
        directory: LogDirectory,
        clock: Clock,
        random: Random,
        node_id: int,
        *,
        rounds: SyncRounds,
        is_synced: bool = False,
    ) -> None:
        """`is_synced` is the mode: whether what is read and acknowledged waits for the sync rounds."""
        self._directory = directory
        self._rounds = rounds
        self._is_synced = is_synced
        self._clock = clock
        self._random = random
        self._node_id = node_id
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[bytes, int], Partition] = {}

    def get(self, topic: str, index: int) -> Partition | None:
        return self._by_name.get((topic, index))

    def get_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        return self._by_id.get((topic_id, index))

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def load(self, image: MetadataImage, values: BrokerValues) -> None:
        """At start: open what lies on the disk, set aside what the metadata does not know, lead the rest."""
        self._directory.load(
            lambda topic: log_config(image.config(TOPIC_RESOURCE, topic), values), self._clock.wall_ms()
        )
        for (name, index), log in sorted(self._directory.partitions.items()):
            topic = image.topics.get(name)
            if topic is None or index not in topic.partitions or log.topic_id not in (None, topic.topic_id):
                path = self._directory.set_aside(name, index, unique_hex=self._unique_hex())
                _log.warning("%s-%d is not in the metadata: kept as %s", name, index, path)
        for _, topic in sorted(image.topics.items()):
            self._follow(topic, image, values)

    def _unique_hex(self) -> str:
        return self._random.randbytes(16).hex()

    # following the metadata

    def on_delta(self, delta: MetadataDelta, values: BrokerValues) -> None:
        for topic in delta.deleted:
            self._delete(topic)
        for topic in (*delta.created, *delta.changed):
            self._follow(topic, delta.after, values)
        if delta.configs:
            self._reconfigure(delta, values)

    def _follow(self, topic: TopicImage, image: MetadataImage, values: BrokerValues) -> None:
        for index, state in sorted(topic.partitions.items()):
            partition = self._by_name.get((topic.name, index))
            if partition is None:
                if self._node_id in state.replicas:
                    self._try_open(topic, index, state.leader_epoch, image, values)
            elif partition.leader_epoch != state.leader_epoch:
                self._lead(partition, state.leader_epoch)

    def _try_open(
        self, topic: TopicImage, index: int, leader_epoch: int, image: MetadataImage, values: BrokerValues
    ) -> None:
        """The record is committed, so the topic exists; but a full disk must not take the others down with it."""
        try:
            self._open(topic, index, leader_epoch, image, values)
        except DiskFullError as error:
            _log.error("no room for %s-%d: %s; it opens at the next start", topic.name, index, error)

    def _open(
        self, topic: TopicImage, index: int, leader_epoch: int, image: MetadataImage, values: BrokerValues
    ) -> None:
        config = log_config(image.config(TOPIC_RESOURCE, topic.name), values)
        log = self._directory.create_partition(
            topic.name, index, config, topic_id=topic.topic_id, now_ms=self._clock.wall_ms()
        )
        partition = Partition(log, topic.topic_id, leader_epoch, self._rounds if self._is_synced else None)
        self._lead(partition, leader_epoch)
        self._by_name[topic.name, index] = partition
        self._by_id[topic.topic_id, index] = partition

    @staticmethod
    def _lead(partition: Partition, leader_epoch: int) -> None:
        partition.leader_epoch = leader_epoch
        partition.log.leader_epochs.assign(leader_epoch, partition.log.log_end_offset)
        partition.changed()

    def _delete(self, topic: TopicImage) -> None:
        for index in sorted(topic.partitions):
            partition = self._by_name.pop((topic.name, index), None)
            self._by_id.pop((topic.topic_id, index), None)
            if partition is not None:
                self._directory.delete_partition(
                    topic.name, index, unique_hex=self._unique_hex(), now_ms=self._clock.wall_ms()
                )
                partition.fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _reconfigure(self, delta: MetadataDelta, values: BrokerValues) -> None:
        everything = any(resource_type == BROKER_RESOURCE for resource_type, _ in delta.configs)
        names = {name for resource_type, name in delta.configs if resource_type == TOPIC_RESOURCE}
        for (topic, _), partition in self._by_name.items():
            if everything or topic in names:
                partition.log.config = log_config(delta.after.config(TOPIC_RESOURCE, topic), values)

    # upkeep, driven by the node

    def apply_retention(self, partitions: Iterable[Partition] | None = None) -> int:
        """Roll and delete what the policies say; the number of segments that went."""
        now_ms = self._clock.wall_ms()
        due = [
            partition
            for partition in (self if partitions is None else partitions)
            if partition.failure == ErrorCode.NONE and partition.log.expired_segments(now_ms, partition.high_watermark)
        ]
        # A power cut may bring one of several deleted segments back. The recovery points on disk must then be behind
        # it, or the start would take what follows it for the far side of a lost tail. On a full disk they cannot be
        # written, and retention is what makes room.
        is_safe = not due or self.checkpoint()
        removed = 0
        for partition in due:
            try:
                gone = partition.log.delete_old_segments(now_ms, partition.high_watermark, one_by_one=not is_safe)
                removed += len(gone)
            except DiskError as error:
                _log.error("retention of %s-%d failed: %s", partition.topic, partition.index, error)
        return removed

    def remove_due_files(self) -> None:
        now_ms = self._clock.wall_ms()
        self._directory.remove_due(now_ms, limit=_REMOVALS_PER_ROUND)
        for partition in self:
            partition.log.remove_due_files(now_ms)

    def expire_producers(self) -> None:
        """Forget the sequences of producers that have been silent for producer.id.expiration.ms."""
        now_ms = self._clock.wall_ms()
        for partition in self:
            partition.log.producers.expire(now_ms, partition.log.config.producer_id_expiration_ms)

    def checkpoint(self) -> bool:
        """High watermarks, recovery points and log starts, for the next start. False when there is no room for them:
        the old ones stay, and the next start has more to check."""
        try:
            self._directory.checkpoint(self.high_watermarks())
        except DiskFullError as error:
            _log.warning("%s; the checkpoints stay as they were", error)
            return False
        return True

    def high_watermarks(self) -> dict[tuple[str, int], int]:
        return {name: partition.high_watermark for name, partition in self._by_name.items()}

    async def flush(self) -> None:
        """Everything that is written so far becomes durable, in one go."""
        await self._rounds.flush([partition.log for partition in self if not partition.log.is_flushed])
