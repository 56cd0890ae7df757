"""All partitions of this node: created, changed and deleted as metadata says; taken away with a directory that fails.

Owns the map from names and ids to partitions. It decides nothing: metadata deltas come in, logs follow. A partition
that cannot be served is not in the map, so that looking one up costs the same whatever may go wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from random import Random

from tidelog.kernel.errors import DiskError, DiskFullError
from tidelog.kernel.ports import Clock
from tidelog.log.errors import DamagedLogError
from tidelog.log.partition_metadata import is_same_topic
from tidelog.metadata.config import BrokerValues
from tidelog.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataDelta, MetadataImage, TopicImage
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.uuids import ZERO_UUID
from tidelog.replication.home import Home
from tidelog.replication.log_config import LogConfigs
from tidelog.replication.partition import Partition

_SMALL_PER_STEP = 100
_NAMED = 5
_log = logging.getLogger("tidelog.partitions")

Name = tuple[str, int]


class Partitions:
    def __init__(
        self, homes: Sequence[Home], clock: Clock, random: Random, node_id: int, *, is_synced: bool = True
    ) -> None:
        """`is_synced` is the mode: whether what is read and acknowledged waits for the sync rounds."""
        self.homes = list(homes)
        self._clock = clock
        self._random = random
        self._node_id = node_id
        self._is_synced = is_synced
        self._configs = LogConfigs()
        self._by_name: dict[Name, Partition] = {}
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self._unserved: dict[Name, bytes] = {}
        """Ours by the metadata, but on a directory that is offline or has no room: name to topic id."""
        self._moved: dict[tuple[bytes, int], bytes] = {}
        self.when_offline: Callable[[Home, DiskError], None] = lambda home, error: None
        """Told after the partitions of a directory that failed have been taken away."""
        for home in self.homes:
            home.when_offline(self._take_offline)

    def get(self, topic: str, index: int) -> Partition | None:
        return self._by_name.get((topic, index))

    def get_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        return self._by_id.get((topic_id, index))

    def why_missing(self, topic: str, index: int) -> ErrorCode:
        """The answer for one that `get` does not know."""
        return ErrorCode.KAFKA_STORAGE_ERROR if (topic, index) in self._unserved else _UNKNOWN

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def unserved_count(self) -> int:
        return len(self._unserved)

    def online(self) -> list[Home]:
        return [home for home in self.homes if home.is_online]

    def load(self, image: MetadataImage, values: BrokerValues) -> None:
        """At start: open what lies on the disks, set aside what the metadata does not know, lead the rest."""
        for home in self.online():
            try:
                self._load_home(home, image, values)
            except DiskError as error:
                home.give_up(error)
            except DamagedLogError as error:
                if len(self.homes) == 1:
                    raise
                home.give_up(DiskError(str(error)))
        for _, topic in sorted(image.topics.items()):
            for _ in self._follow(topic, image, values):
                pass

    def _load_home(self, home: Home, image: MetadataImage, values: BrokerValues) -> None:
        directory = home.directory
        directory.load(
            lambda topic: self._configs.get(image.config(TOPIC_RESOURCE, topic), values), self._clock.wall_ms()
        )
        for (name, index), log in sorted(directory.partitions.items()):
            topic = image.topics.get(name)
            if topic is None or index not in topic.partitions or not is_same_topic(log.topic_id, topic.topic_id):
                path = directory.set_aside(name, index, unique_hex=self._unique_hex())
                _log.warning("%s-%d is not in the metadata: kept as %s", name, index, path)
            elif log.mend_topic_id(topic.topic_id):
                _log.warning("%s/partition.metadata was damaged: its topic id is written again", log.directory)
        _warn_of_strays(directory.strays)

    def _unique_hex(self) -> str:
        return self._random.randbytes(16).hex()

    # following the metadata

    def on_delta(self, delta: MetadataDelta, values: BrokerValues) -> None:
        for _ in self.following(delta, values):
            pass

    def following(self, delta: MetadataDelta, values: BrokerValues) -> Generator[None, None, None]:
        """What the delta asks for, in steps: others may have a turn between two of them."""
        for topic in delta.deleted:
            yield from self._delete(topic)
        for topic in (*delta.created, *delta.changed):
            yield from self._follow(topic, delta.after, values)
        if delta.configs:
            yield from self._reconfigure(delta, values)

    def _follow(self, topic: TopicImage, image: MetadataImage, values: BrokerValues) -> Generator[None, None, None]:
        for number, (index, state) in enumerate(sorted(topic.partitions.items())):
            partition = self._by_name.get((topic.name, index))
            if partition is None:
                if self._node_id in state.replicas and state.leader in (self._node_id, -1):
                    self._try_open(topic, index, image, values)
                    yield
            elif partition.leader_epoch != state.leader_epoch:
                self._lead(partition, state.leader_epoch)
            if number % _SMALL_PER_STEP == _SMALL_PER_STEP - 1:
                yield

    def _try_open(self, topic: TopicImage, index: int, image: MetadataImage, values: BrokerValues) -> None:
        """The record is committed, so the topic exists; but a disk that is full or broken must not take the others
        down with it."""
        name = (topic.name, index)
        is_first = name not in self._unserved
        self._unserved[name] = topic.topic_id
        home = self._home_of(topic, index, image)
        if home is None:
            return
        try:
            self._open(home, topic, index, image, values)
        except DiskFullError as error:
            if is_first:
                _log.error("no room for %s-%d: %s; it opens when there is", topic.name, index, error)
        except DiskError as error:
            home.give_up(error)
        else:
            del self._unserved[name]

    def _home_of(self, topic: TopicImage, index: int, image: MetadataImage) -> Home | None:
        """Where its log is, else where the metadata wants it; None when that directory is offline."""
        wanted = topic.partitions[index].directory_of(self._node_id)
        online = self.online()
        holders = [home for home in online if (topic.name, index) in home.directory.partitions]
        home = next((home for home in holders if home.directory_id == wanted), holders[0] if holders else None)
        for other in holders:
            if other is not home:
                path = other.directory.set_aside(topic.name, index, unique_hex=self._unique_hex())
                _log.warning("%s-%d is in two log directories: one is kept as %s", topic.name, index, path)
        if home is None:
            home = next((home for home in online if home.directory_id == wanted), None)
        if home is None and wanted == ZERO_UUID and online:
            home = min(online, key=lambda home: len(home.directory.partitions))
        if home is not None and home.directory_id != wanted:
            self._moved[topic.topic_id, index] = home.directory_id
        return home

    def _open(self, home: Home, topic: TopicImage, index: int, image: MetadataImage, values: BrokerValues) -> None:
        config = self._configs.get(image.config(TOPIC_RESOURCE, topic.name), values)
        log = home.directory.create_partition(
            topic.name, index, config, topic_id=topic.topic_id, now_ms=self._clock.wall_ms()
        )
        leader_epoch = topic.partitions[index].leader_epoch
        partition = Partition(log, topic.topic_id, leader_epoch, home, is_synced=self._is_synced)
        self._lead(partition, leader_epoch)
        if log.log_end_offset == 0 and not log.is_flushed:
            # A new one, made in a slice of the loop's time: better here than with the first batch of each.
            log.leader_epochs.settle()
        self._by_name[topic.name, index] = partition
        self._by_id[topic.topic_id, index] = partition

    @staticmethod
    def _lead(partition: Partition, leader_epoch: int) -> None:
        partition.leader_epoch = leader_epoch
        partition.log.leader_epochs.begin(leader_epoch, partition.log.log_end_offset)
        partition.changed()

    def _delete(self, topic: TopicImage) -> Generator[None, None, None]:
        for index in sorted(topic.partitions):
            partition = self._by_name.pop((topic.name, index), None)
            self._by_id.pop((topic.topic_id, index), None)
            self._unserved.pop((topic.name, index), None)
            if partition is None:
                continue
            home = partition.home
            try:
                home.directory.delete_partition(
                    topic.name, index, unique_hex=self._unique_hex(), now_ms=self._clock.wall_ms()
                )
            except DiskError as error:
                home.failed(error)
            partition.fail(_UNKNOWN)
            yield

    def _reconfigure(self, delta: MetadataDelta, values: BrokerValues) -> Generator[None, None, None]:
        everything = any(resource_type == BROKER_RESOURCE for resource_type, _ in delta.configs)
        names = {name for resource_type, name in delta.configs if resource_type == TOPIC_RESOURCE}
        for number, partition in enumerate(list(self._by_name.values())):
            if everything or partition.topic in names:
                overrides = delta.after.config(TOPIC_RESOURCE, partition.topic)
                partition.log.config = self._configs.get(overrides, values)
            if number % _SMALL_PER_STEP == _SMALL_PER_STEP - 1:
                yield

    def take_moved(self) -> dict[tuple[bytes, int], bytes]:
        """Partitions, by topic id and index, whose log is in another directory than the metadata says, and in which:
        for the controller to hear of."""
        moved, self._moved = self._moved, {}
        return moved

    # directories that fail or fill up

    def _take_offline(self, home: Home, error: DiskError) -> None:
        """Nothing of the directory is served from here on; the others go on."""
        _log.critical("the log directory %s is offline: %s", home.directory.path, error)
        gone = [partition for partition in self if partition.home is home]
        for partition in gone:
            name = (partition.topic, partition.index)
            del self._by_name[name]
            del self._by_id[partition.topic_id, partition.index]
            self._unserved[name] = partition.topic_id
        for partition in gone:
            partition.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        self.when_offline(home, error)

    def open_unserved(self, image: MetadataImage, values: BrokerValues) -> int:
        """Try again those for which there was no room; how many are served now."""
        before = len(self._unserved)
        for (name, index), topic_id in sorted(self._unserved.items()):
            topic = image.topics.get(name)
            # The image may be ahead of what has been followed: a new topic of that name is not this one.
            if topic is not None and topic.topic_id == topic_id and index in topic.partitions:
                self._try_open(topic, index, image, values)
        return before - len(self._unserved)

    # for the checkpoints

    def high_watermarks(self, home: Home) -> dict[Name, int]:
        return {name: partition.high_watermark for name, partition in self._by_name.items() if partition.home is home}


def _warn_of_strays(paths: Sequence[str]) -> None:
    """Again at each start, in one line: nothing else tells of them, and somebody may miss their topics."""
    if paths:
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        _log.warning("set aside by an earlier start, which did not know them: %s%s", ", ".join(paths[:_NAMED]), more)


_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
