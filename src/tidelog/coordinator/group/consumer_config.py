"""What can be set for one consumer group (KIP-848) apart from the others, as the coordinator asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias


class ConsumerGroupConfig(NamedTuple):
    """Defaults are Kafka's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


ConsumerGroupConfigs: TypeAlias = Callable[[str], ConsumerGroupConfig]
"""By group id, at any time: what was set for the group, else for the broker. The answer changes with the metadata."""


def defaults(_: str) -> ConsumerGroupConfig:
    """Of a coordinator that was handed no configs."""
    return ConsumerGroupConfig()
