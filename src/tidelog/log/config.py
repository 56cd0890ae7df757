"""What one partition's log needs to know of its topic's configuration."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Names and defaults are Kafka's topic configs."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = 2**63 - 1
    message_timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    min_insync_replicas: int = 1
    producer_id_expiration_ms: int = 86_400_000
    delete_retention_ms: int = 86_400_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    keeps_batches: bool = field(init=False)
    """Nothing here asks to change a batch or to look at its records."""
    batch_bytes_max: int = field(init=False)

    def __post_init__(self) -> None:
        plain = self.compression_type == "producer" and self.message_timestamp_type == "CreateTime"
        object.__setattr__(self, "keeps_batches", plain and "compact" not in self.cleanup_policy)
        object.__setattr__(self, "batch_bytes_max", min(self.max_message_bytes, self.segment_bytes))

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy
