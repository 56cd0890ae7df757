"""Committed offsets of all groups of one internal partition, and those of transactions that are still open.

Changed by replay only. Which group may commit, and when an offset is old enough to go, is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.coordinator.group.records import CommittedOffset

_Stored = tuple[CommittedOffset, int]
"""The value, and the offset of its record: of two commits the one later in the log wins, whenever its marker came."""


class Offsets:
    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, _Stored]]] = {}
        self._pending: dict[int, dict[tuple[str, str, int], _Stored]] = {}
        self._unstable: dict[str, dict[tuple[str, int], set[int]]] = {}
        """The producers of `_pending` by group, topic and partition."""

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        stored = self._groups.get(group_id, {}).get(topic, {}).get(partition)
        return None if stored is None else stored[0]

    def has_group(self, group_id: str) -> bool:
        return group_id in self._groups

    def group_ids(self) -> list[str]:
        return list(self._groups)

    def topics(self, group_id: str) -> list[str]:
        return list(self._groups.get(group_id, ()))

    def of_topic(self, group_id: str, topic: str) -> list[tuple[int, CommittedOffset]]:
        stored = self._groups.get(group_id, {}).get(topic, {})
        return [(partition, value) for partition, (value, _) in stored.items()]

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic in self.topics(group_id):
            for partition, value in self.of_topic(group_id, topic):
                yield topic, partition, value

    def put(self, group_id: str, topic: str, partition: int, value: CommittedOffset, record_offset: int) -> None:
        self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = (value, record_offset)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._groups.get(group_id)
        if topics is not None and (partitions := topics.get(topic)) is not None:
            partitions.pop(partition, None)
            if not partitions:
                del topics[topic]
            if not topics:
                del self._groups[group_id]
        for producer_id in list(self._unstable.get(group_id, {}).get((topic, partition), ())):
            self._remove_pending(producer_id, (group_id, topic, partition))

    # transactions

    def put_pending(
        self, producer_id: int, group_id: str, topic: str, partition: int, value: CommittedOffset, record_offset: int
    ) -> None:
        self._pending.setdefault(producer_id, {})[group_id, topic, partition] = (value, record_offset)
        self._unstable.setdefault(group_id, {}).setdefault((topic, partition), set()).add(producer_id)

    def _remove_pending(self, producer_id: int, key: tuple[str, str, int]) -> _Stored:
        group_id, topic, partition = key
        offsets = self._pending[producer_id]
        stored = offsets.pop(key)
        if not offsets:
            del self._pending[producer_id]
        partitions = self._unstable[group_id]
        producers = partitions[topic, partition]
        producers.discard(producer_id)
        if not producers:
            del partitions[topic, partition]
        if not partitions:
            del self._unstable[group_id]
        return stored

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return (topic, partition) in self._unstable.get(group_id, ())

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._unstable

    def pending_of_group(self, group_id: str) -> list[tuple[str, int]]:
        return sorted(self._unstable.get(group_id, ()))

    def pending(self) -> Iterator[tuple[str, str, int, CommittedOffset]]:
        for offsets in list(self._pending.values()):
            for (group_id, topic, partition), (value, _) in list(offsets.items()):
                yield group_id, topic, partition, value

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        for key in list(self._pending.get(producer_id, ())):
            value, record_offset = self._remove_pending(producer_id, key)
            group_id, topic, partition = key
            stored = self._groups.get(group_id, {}).get(topic, {}).get(partition)
            if committed and (stored is None or stored[1] < record_offset):
                self.put(group_id, topic, partition, value, record_offset)
