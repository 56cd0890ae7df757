"""What the group coordinator needs of the broker's configuration; names and defaults are Kafka's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    offsets_topic_num_partitions: int = 50

    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """Names; the first is for groups whose members ask for none."""
    group_consumer_migration_policy: str = "bidirectional"

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000


NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a new member, which cannot send heartbeats yet, is kept in a rebalance that does not end."""
