"""What a user asked for, checked before anything is read: each name and value by the table, then how they fit."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from tidelog.client.positions import EARLIEST, LATEST
from tidelog.spark.client_config import ConfigError, Isolation, parse_config
from tidelog.spark.offsets import Offsets, by_partition
from tidelog.spark.source.table import BY_NAME, TABLE

if TYPE_CHECKING:
    from tidelog.spark.link import At

T = TypeVar("T")
KAFKA: Final = "kafka."
_KINDS: Final = ("subscribe", "subscribePattern", "assign")
_LIMITS: Final = ("minOffsetsPerTrigger", "maxOffsetsPerTrigger")


class OptionError(ConfigError):
    """A bad option; the message names it and what is allowed."""


@dataclass(frozen=True, slots=True)
class Everywhere:
    """EARLIEST or LATEST."""

    offset: int


@dataclass(frozen=True, slots=True)
class Given:
    """Offsets, EARLIEST and LATEST among them."""

    option: str
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTime:
    option: str
    times: int | Mapping[At, int]


Position = Everywhere | Given | AtTime


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    kafka: Mapping[str, str]
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[At, ...] = ()
    """Single ones (assign)."""
    starting: Position | None = None
    ending: Position = field(default=Everywhere(LATEST))
    strategy: Literal["error", "latest"] = "error"
    fail_on_data_loss: bool = True
    include_headers: bool = False
    isolation: Isolation = "read_committed"
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60_000
    commit_group: str | None = None
    filter_pushdown: bool = False
    silence_s: float = 120.0
    log_dirs: tuple[str, ...] = ()
    """Where segments are read from; none: from the broker."""
    stream_only: tuple[str, ...] = ()
    """Options that were given and mean nothing to a batch."""

    def starting_for(self, mode: Literal["batch", "stream"]) -> Position:
        """Where to start; what a batch or a stream cannot do is refused."""
        if mode == "stream":
            if self.ending != Everywhere(LATEST):
                name = self.ending.option if not isinstance(self.ending, Everywhere) else "endingOffsets"
                raise OptionError(f"{name} is for batch queries (spark.read); a stream has no end")
            return self.starting or Everywhere(LATEST)
        starting = self.starting or Everywhere(EARLIEST)
        _forbid(starting, "startingOffsets", LATEST, "latest")
        _forbid(self.ending, "endingOffsets", EARLIEST, "earliest")
        return starting


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """OptionError or ConfigError for the first thing that is wrong."""
    kafka = {name[len(KAFKA) :]: text for name, text in given.items() if name.lower().startswith(KAFKA)}
    values = {BY_NAME[name.lower()].name: text for name, text in given.items() if _is_known(name)}
    parsed = {name: _parse(name, text) for name, text in values.items()}
    isolation = parse_config(kafka, prefix=KAFKA).isolation
    if isolation is not None and parsed.setdefault("isolation", isolation) != isolation:
        raise OptionError(
            f"isolation={values['isolation']} and kafka.isolation.level={isolation} contradict each other"
        )
    least, most = (parsed.get(name) for name in _LIMITS)
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}")
    if parsed.get("read") == "segments" and "logDirs" not in parsed:
        raise OptionError(f"read=segments needs logDirs: {BY_NAME['logdirs'].allowed}")
    return SourceOptions(
        kafka=kafka,
        **_selection(values),
        starting=_position(parsed, "starting"),
        ending=_position(parsed, "ending") or Everywhere(LATEST),
        strategy=parsed.get("startingOffsetsByTimestampStrategy", "error"),
        fail_on_data_loss=parsed.get("failOnDataLoss", True),
        include_headers=parsed.get("includeHeaders", False),
        isolation=parsed.get("isolation", "read_committed"),
        min_partitions=parsed.get("minPartitions"),
        max_records_per_partition=parsed.get("maxRecordsPerPartition"),
        max_offsets=most,
        max_bytes=parsed.get("maxBytesPerTrigger"),
        min_offsets=least,
        max_delay_ms=parsed.get("maxTriggerDelay", 15 * 60_000),
        commit_group=parsed.get("commitGroup"),
        filter_pushdown=parsed.get("filterPushdown", False),
        silence_s=parsed.get("kafkaConsumer.pollTimeoutMs", 120_000) / 1000,
        log_dirs=parsed["logDirs"] if parsed.get("read") == "segments" else (),
        stream_only=tuple(option.name for option in TABLE if option.use == "stream" and option.name in values),
    )


def _is_known(name: str) -> bool:
    if name.lower().startswith(KAFKA):
        return False
    if name.lower() in BY_NAME:
        return True
    near = difflib.get_close_matches(name.lower(), [*BY_NAME, "kafka.bootstrap.servers"], n=1, cutoff=0.7)
    spelt = BY_NAME[near[0]].name if near and near[0] in BY_NAME else "".join(near)
    hint = f"; did you mean {spelt}?" if near else "."
    allowed = ", ".join(option.name for option in TABLE)
    raise OptionError(f"{name} is not an option of the source tidelog{hint} Allowed are {allowed} and kafka.*")


def _parse(name: str, text: str) -> Any:
    option = BY_NAME[name.lower()]
    try:
        return option.parse(text)
    except (ValueError, KeyError):
        raise OptionError(f"{name}={text}: expected {option.allowed}") from None


def _json(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise OptionError(
            f"{name}={text}: expected {BY_NAME[name.lower()].allowed}; this is not JSON: {error}"
        ) from None
    if not isinstance(found, dict) or not found:
        raise OptionError(f"{name}={text}: expected {BY_NAME[name.lower()].allowed}")
    return found


def _selection(values: Mapping[str, str]) -> dict[str, Any]:
    """Which topics or partitions: exactly one of the three options."""
    given = [name for name in _KINDS if name in values]
    if len(given) != 1:
        problem = f"{' and '.join(given)} are given" if given else "none is given"
        raise OptionError(f"exactly one of {', '.join(_KINDS)} says what to read; {problem}")
    name, text = given[0], values[given[0]]
    if name == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not topics:
            raise OptionError(f"subscribe={text}: expected topics with commas between")
        return {"topics": topics}
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"subscribePattern={text}: not a regular expression: {error}") from None
        return {"pattern": text}
    found = _json(name, text)
    if not all(isinstance(part, list) and part and all(_is_index(one) for one in part) for part in found.values()):
        raise OptionError(f"assign={text}: expected {BY_NAME['assign'].allowed}")
    return {"partitions": tuple(sorted({(topic, one) for topic, part in found.items() for one in part}))}


def _is_index(one: object) -> bool:
    return isinstance(one, int) and not isinstance(one, bool) and one >= 0


def _position(parsed: Mapping[str, Any], side: Literal["starting", "ending"]) -> Position | None:
    """By precedence: one time for all, times, offsets."""
    if (name := f"{side}Timestamp") in parsed:
        return AtTime(name, parsed[name])
    if (name := f"{side}OffsetsByTimestamp") in parsed:
        times = _numbers(name, parsed[name], least=0)
        return AtTime(name, times.at)
    if (name := f"{side}Offsets") not in parsed:
        return None
    text: str = parsed[name]
    if text.lower() in ("earliest", "latest"):
        return Everywhere(EARLIEST if text.lower() == "earliest" else LATEST)
    return Given(name, _numbers(name, text, least=EARLIEST))


def _numbers(name: str, text: str, *, least: int) -> Offsets:
    found = _json(name, text)
    try:
        offsets = Offsets.from_json(found) if least < 0 else Offsets(by_partition(found))
    except ValueError as error:
        raise OptionError(f"{name}={text}: expected {BY_NAME[name.lower()].allowed}; {error}") from None
    for (topic, partition), number in offsets.at.items():
        if number < least:
            raise OptionError(f"{name}: {number} for {topic}-{partition}; expected {BY_NAME[name.lower()].allowed}")
    return offsets


def _forbid(position: Position, name: str, offset: int, word: str) -> None:
    if position == Everywhere(offset):
        raise OptionError(f"{name}={word} reads nothing in a batch query (spark.read)")
    if isinstance(position, Given) and offset in position.offsets.at.values():
        raise OptionError(f"{name}: {offset} ({word}) reads nothing in a batch query (spark.read)")
