"""Groups of protocols that are not served yet (share, streams), as Apache Kafka left them.

Their records stay in the log for the way back. Another group of the same name is refused, as there; a group that is
deleted takes them with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog.coordinator.group.records import ForeignRecord, GroupRecord, GroupRemoved


class ForeignGroups:
    def __init__(self) -> None:
        self._keys: dict[str, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def names(self) -> list[str]:
        return sorted(self._keys)

    def replay(self, record: ForeignRecord) -> None:
        if record.is_there:
            self._keys.setdefault(record.group_id, {})[record.key] = None
        elif (keys := self._keys.get(record.group_id)) is not None:
            keys.pop(record.key, None)
            if not keys:
                del self._keys[record.group_id]

    def is_refused(self, group_id: str) -> bool:
        """Whether the name belongs to a group that no other can follow."""
        return group_id in self._keys

    def removals(self, group_id: str) -> list[GroupRecord]:
        return [ForeignRecord(group_id, key, False) for key in sorted(self._keys.get(group_id, ()))]

    def with_removals(self, records: Iterable[GroupRecord]) -> Iterator[GroupRecord]:
        """What goes with a group that is removed."""
        for record in records:
            if isinstance(record, GroupRemoved):
                yield from self.removals(record.group_id)
            yield record
