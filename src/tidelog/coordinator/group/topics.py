"""What the group coordinator asks of the cluster's metadata."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Topics(Protocol):
    def topic_id(self, name: str) -> bytes | None: ...

    def topic_name(self, topic_id: bytes) -> str | None: ...

    def has_partition(self, name: str, partition: int) -> bool: ...

    def partition_count(self, name: str) -> int:
        """0 for a topic that does not exist."""
        ...

    def names(self) -> Iterable[str]: ...

    def version(self) -> int:
        """Of the metadata: the offset of the last record that was applied."""
        ...
