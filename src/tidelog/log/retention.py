"""Which segments are too old: by their records' time, by the size of the log, by the start of the log. Decides only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from tidelog.log.config import LogConfig
from tidelog.log.segment import Segment


class Reason(StrEnum):
    LOG_START = "log start offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


class Removal(NamedTuple):
    base_offset: int
    size_bytes: int
    reason: Reason


def expired(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
) -> list[tuple[Segment, Reason]]:
    """The oldest segments that may go, in order; nothing behind the high watermark, no empty active one."""
    size = sum(segment.size for segment in segments)
    found: list[tuple[Segment, Reason]] = []
    rules: list[tuple[Reason, Callable[[Segment, int], bool]]] = [
        (Reason.LOG_START, lambda segment, end: end <= log_start_offset and segment is not segments[-1]),
    ]
    if "delete" in config.cleanup_policy:
        if config.retention_bytes >= 0:
            rules.append((Reason.SIZE, lambda segment, _: size - segment.size >= config.retention_bytes))
        if config.retention_ms >= 0:
            rules.append((Reason.TIME, lambda segment, _: now_ms - segment.retention_timestamp() > config.retention_ms))
    for number, segment in enumerate(segments):
        is_active = number == len(segments) - 1
        end = log_end_offset if is_active else segments[number + 1].base_offset
        if end > high_watermark or (is_active and segment.size == 0):
            break
        reason = next((reason for reason, applies in rules if applies(segment, end)), None)
        if reason is None:
            break
        found.append((segment, reason))
        size -= segment.size
    return found
