"""What the group coordinator asks of the cluster's metadata."""

from __future__ import annotations

from typing import Protocol


class Topics(Protocol):
    def topic_id(self, name: str) -> bytes | None: ...

    def topic_name(self, topic_id: bytes) -> str | None: ...

    def has_partition(self, name: str, partition: int) -> bool: ...
