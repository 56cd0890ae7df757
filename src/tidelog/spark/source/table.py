"""The one table of the source's options: names, what is allowed, defaults, meanings. Parser, errors and docs use it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

Use = Literal["both", "batch", "stream"]
_DURATION_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES: Final = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    allowed: str
    """In words, for errors and docs."""
    default: str
    """In words; empty when there is none."""
    use: Use
    meaning: str
    parse: Callable[[str], Any] = str
    """ValueError for what is not allowed."""


def _count(text: str) -> int:
    number = int(text.strip())
    if not 0 < number <= _LARGEST:
        raise ValueError(text)
    return number


def _time(text: str) -> int:
    number = int(text.strip())
    if not 0 <= number <= _LARGEST:
        raise ValueError(text)
    return number


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _measured(units: dict[str, int]) -> Callable[[str], int]:
    def parse(text: str) -> int:
        found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
        if found is None or found[2] not in units or not int(found[1]):
            raise ValueError(text)
        return _count(str(int(found[1]) * units[found[2]]))

    return parse


def _choice(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip().lower() not in names:
            raise ValueError(text)
        return text.strip().lower()

    return parse


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text.strip()


def _directories(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found or not all(part.startswith("/") for part in found):
        raise ValueError(text)
    return found


_OFFSETS: Final = '{"topic": {"0": 23, "1": -2}} (-2: the earliest, -1: the latest)'
_TIMES: Final = '{"topic": {"0": 1700000000000}} (ms since 1970)'
_COUNT: Final = "a whole number from 1"

TABLE: Final = (
    Option("subscribe", "topics with commas between", "", "both", "The topics to read.", _text),
    Option("subscribePattern", "a regular expression", "", "both", "Topics whose whole name matches.", _text),
    Option("assign", '{"topic": [0, 1]}', "", "both", "Single partitions.", _text),
    Option(
        "startingOffsets",
        f"earliest, latest (streams only) or {_OFFSETS}",
        "latest (stream), earliest (batch)",
        "both",
        "Where a new query starts; partitions that appear later start at their earliest offset.",
        _text,
    ),
    Option(
        "startingOffsetsByTimestamp",
        _TIMES,
        "",
        "both",
        "Starts at the first record of that time or later. Goes before startingOffsets.",
        _text,
    ),
    Option(
        "startingTimestamp",
        "ms since 1970",
        "",
        "both",
        "The same time for all partitions. Goes before both others.",
        _time,
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error or latest",
        "error",
        "both",
        "What happens where no record is that young.",
        _choice("error", "latest"),
    ),
    Option("endingOffsets", f"latest or {_OFFSETS}", "latest", "batch", "Where a batch query ends (before it).", _text),
    Option(
        "endingOffsetsByTimestamp",
        _TIMES,
        "",
        "batch",
        "Ends before the first record of that time or later; at the latest where there is none.",
        _text,
    ),
    Option("endingTimestamp", "ms since 1970", "", "batch", "The same time for all partitions.", _time),
    Option(
        "failOnDataLoss",
        "true or false",
        "true",
        "both",
        "Whether records that are gone before they were read (retention, a topic deleted or created again) end the "
        "query; if not, a warning is logged and it goes on with what is left.",
        _truth,
    ),
    Option(
        "includeHeaders", "true or false", "false", "both", "Whether there is a column headers. Costs a little.", _truth
    ),
    Option(
        "isolation",
        "read_committed or read_uncommitted",
        "read_committed",
        "both",
        "Whether records of open and aborted transactions are left out. kafka.isolation.level says the same.",
        _choice("read_committed", "read_uncommitted"),
    ),
    Option(
        "read",
        "broker or segments",
        "broker",
        "both",
        "Where records come from: the broker, or its segment files, read by the tasks themselves.",
        _choice("broker", "segments"),
    ),
    Option(
        "logDirs",
        "absolute paths with commas between",
        "",
        "both",
        "With read=segments, the data directories of the brokers (their log.dirs) as the executors see them.",
        _directories,
    ),
    Option("minPartitions", _COUNT, "", "both", "Splits partitions until there are about so many tasks.", _count),
    Option("maxRecordsPerPartition", _COUNT, "", "both", "Splits partitions so that no task has more offsets.", _count),
    Option(
        "maxOffsetsPerTrigger",
        _COUNT,
        "",
        "stream",
        "At most so many offsets in a micro-batch, shared out in proportion to what waits.",
        _count,
    ),
    Option(
        "maxBytesPerTrigger",
        "bytes, or a number with k, m or g",
        "",
        "stream",
        "At most about so many bytes as they lie in the log, by the average size of a partition's records.",
        _measured(_BYTES),
    ),
    Option("minOffsetsPerTrigger", _COUNT, "", "stream", "Waits until so many are there, or maxTriggerDelay.", _count),
    Option(
        "maxTriggerDelay",
        "a time such as 500ms, 10s, 15m, 1h",
        "15m",
        "stream",
        "How long minOffsetsPerTrigger may hold back what has arrived.",
        _measured(_DURATION_MS),
    ),
    Option(
        "commitGroup",
        "the name of a consumer group without members",
        "",
        "stream",
        "Progress is committed to it after each micro-batch, at the next trigger: every Kafka tool shows the lag.",
        _text,
    ),
    Option(
        "filterPushdown",
        "true or false",
        "false",
        "batch",
        "Filters narrow what is read, where the session allows it. Only for a frame that is used in one query and once "
        "in it: Spark keeps the filters of a frame's first use for its later ones.",
        _truth,
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        _COUNT,
        "120000",
        "both",
        "How long a task waits for records that must be there before it fails.",
        _count,
    ),
    Option("fetchOffset.numRetries", _COUNT, "", "both", "No effect: see kafka.default.api.timeout.ms.", _count),
    Option("fetchOffset.retryIntervalMs", _COUNT, "", "both", "No effect: see kafka.retry.backoff.ms.", _count),
    Option("groupIdPrefix", "text", "", "both", "No effect: no group takes part in reading.", _text),
)
BY_NAME: Final = {option.name.lower(): option for option in TABLE}
