"""Groups of protocols that are not served yet (KIP-848 consumer, share, streams), as Apache Kafka left them.

Their records stay in the log for the way back. Two things must not go wrong meanwhile: a classic group of the same name
must first take away what a consumer group left, as Apache does when it converts one, or Apache could not load the
partition again; and one of a share or streams group is refused, as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tidelog.coordinator.group.records import ForeignRecord, GroupRecord, GroupRemoved

# Types of the records of a consumer group in the order in which they may go: members before the group that has them.
_CONSUMER_ORDER: Final = (8, 7, 6, 5, 16, 4, 3)


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
        """Whether the name belongs to a group that a classic one cannot follow."""
        return any(_type_of(key) not in _CONSUMER_ORDER for key in self._keys.get(group_id, ()))

    def removals(self, group_id: str) -> list[GroupRecord]:
        keys = sorted(self._keys.get(group_id, ()), key=_order)
        return [ForeignRecord(group_id, key, False) for key in keys]

    def with_removals(self, records: Iterable[GroupRecord]) -> Iterator[GroupRecord]:
        """What goes with a group that is removed."""
        for record in records:
            if isinstance(record, GroupRemoved):
                yield from self.removals(record.group_id)
            yield record


def _type_of(key: bytes) -> int:
    return int.from_bytes(key[:2], "big")


def _order(key: bytes) -> tuple[int, bytes]:
    kind = _type_of(key)
    return (_CONSUMER_ORDER.index(kind) if kind in _CONSUMER_ORDER else len(_CONSUMER_ORDER), key)
