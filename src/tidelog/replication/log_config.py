"""A topic's configuration as its log wants it: Kafka's names to LogConfig."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidelog.log.config import LogConfig
from tidelog.metadata.config import BrokerValues, effective_topic_values

_KEPT_MAX: Final = 1024


class LogConfigs:
    """One object for equal settings: ten thousand partitions mostly share a few, and none is worked out twice."""

    def __init__(self) -> None:
        self._broker: BrokerValues | None = None
        self._kept: dict[frozenset[tuple[str, str]], LogConfig] = {}

    def get(self, overrides: Mapping[str, str], broker: BrokerValues) -> LogConfig:
        if broker is not self._broker or len(self._kept) >= _KEPT_MAX:
            self._broker = broker
            self._kept = {}
        key = frozenset(overrides.items())
        config = self._kept.get(key)
        if config is None:
            config = self._kept[key] = log_config(overrides, broker)
        return config


def log_config(overrides: Mapping[str, str], broker: BrokerValues) -> LogConfig:
    values: dict[str, Any] = dict(effective_topic_values(overrides, broker))
    return LogConfig(
        segment_bytes=values["internal.segment.bytes"] or values["segment.bytes"],
        segment_ms=_segment_ms(values),
        segment_jitter_ms=values["segment.jitter.ms"],
        segment_index_bytes=values["segment.index.bytes"],
        index_interval_bytes=values["index.interval.bytes"],
        retention_ms=values["retention.ms"],
        retention_bytes=values["retention.bytes"],
        cleanup_policy=frozenset(values["cleanup.policy"]),
        file_delete_delay_ms=values["file.delete.delay.ms"],
        max_message_bytes=values["max.message.bytes"],
        message_timestamp_type=values["message.timestamp.type"],
        message_timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        message_timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
        compression_type=values["compression.type"],
        compression_gzip_level=values["compression.gzip.level"],
        compression_lz4_level=values["compression.lz4.level"],
        compression_zstd_level=values["compression.zstd.level"],
        min_insync_replicas=values["min.insync.replicas"],
        producer_id_expiration_ms=int(broker["producer.id.expiration.ms"]),  # type: ignore[arg-type]
        delete_retention_ms=values["delete.retention.ms"],
        min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
        min_compaction_lag_ms=values["min.compaction.lag.ms"],
        max_compaction_lag_ms=values["max.compaction.lag.ms"],
    )


def _segment_ms(values: Mapping[str, Any]) -> int:
    """The active segment is never cleaned: max.compaction.lag.ms has to end it, too."""
    if "compact" in values["cleanup.policy"]:
        return int(min(values["segment.ms"], values["max.compaction.lag.ms"]))
    return int(values["segment.ms"])
