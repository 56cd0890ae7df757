"""What a user asked the sink for, checked before a job starts: each name and value, then how they fit."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from tidelog.protocol.compression import Codec
from tidelog.protocol.topic_names import complaint_about_name
from tidelog.spark.client_config import parse_config
from tidelog.spark.source.options import KAFKA, OptionError

Delivery = Literal["exactly_once", "at_least_once"]
CODECS: Final = {codec.name.lower(): codec for codec in Codec}
STATE_TOPIC: Final = "__tidelog_sink"
_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
_GREATEST: Final = 2**31 - 1
_OF_SPARK: Final = ("checkpointlocation", "queryname")
"""Options for Spark itself, which it hands on to the sink."""


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    allowed: str
    default: str
    meaning: str
    parse: Callable[[str], Any]


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text.strip()


def _topic(text: str) -> str:
    if complaint_about_name(text) is not None:
        raise ValueError(text)
    return text


def _one_of(known: Mapping[str, Any]) -> Callable[[str], Any]:
    return lambda text: known[text.strip().lower()]


def _number(least: int, greatest: int = _GREATEST) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text.strip())
        if not least <= number <= greatest:
            raise ValueError(text)
        return number

    return parse


TABLE: Final = (
    Option("topic", "the name of a topic", "", "Where all rows go; a column topic is not looked at.", _topic),
    Option(
        "delivery",
        "exactly_once or at_least_once",
        "exactly_once",
        "Whether rows become visible with the epoch, once, or at once and perhaps again after a failure.",
        _one_of({"exactly_once": "exactly_once", "at_least_once": "at_least_once"}),
    ),
    Option(
        "timestampColumn",
        "the name of a column of type timestamp",
        "",
        "The time of each record; without it, or where it is null, the time of writing.",
        _text,
    ),
    Option(
        "txnAppId",
        "text",
        "",
        "Batch writes only, with txnVersion: who writes. A version that was written is not written again.",
        _text,
    ),
    Option(
        "txnVersion",
        "a whole number from 0",
        "",
        "Batch writes only: goes up from write to write.",
        _number(0, 2**63 - 1),
    ),
    Option(
        "stateTopic", "the name of a topic", STATE_TOPIC, "Keeps what was decided; created where it is missing.", _topic
    ),
    Option(
        "transactionalIdPrefix",
        "text",
        "tidelog-sink-",
        "What all transactional ids begin with, for ACLs.",
        _text,
    ),
)
KAFKA_TABLE: Final = (
    Option("acks", "all, -1, 1 or 0 (exactly_once: all)", "all", "Who must have a batch.", _one_of(_ACKS)),
    Option("compression.type", ", ".join(CODECS), "none", "The compression of record batches.", _one_of(CODECS)),
    Option(
        "batch.size",
        f"a whole number from 1 to {_GREATEST}",
        "524288",
        "Bytes of a batch before compression.",
        _number(1),
    ),
    Option(
        "buffer.memory",
        f"a whole number from 1 to {_GREATEST}",
        "33554432",
        "Bytes of batches under way in one task.",
        _number(1),
    ),
    Option(
        "transaction.timeout.ms",
        f"a whole number from 1000 to {_GREATEST}",
        "900000",
        "How long a task's transaction may stay open; at most transaction.max.timeout.ms of the broker.",
        _number(1000),
    ),
    Option("linger.ms", "a number", "", "No effect: a task fills its batches from the rows it has.", float),
    Option("enable.idempotence", "true or false", "", "No effect: with acks=all it is on.", _text),
    Option(
        "max.in.flight.requests.per.connection",
        "a number",
        "",
        "No effect: one batch of a partition is under way.",
        int,
    ),
    Option("max.request.size", "a number", "", "No effect: see kafka.batch.size.", int),
    Option("retries", "a number", "", "No effect: see kafka.default.api.timeout.ms.", int),
    Option("delivery.timeout.ms", "a number", "", "No effect: see kafka.default.api.timeout.ms.", int),
)
BY_NAME: Final = {option.name.lower(): option for option in TABLE}
KAFKA_BY_NAME: Final = {option.name: option for option in KAFKA_TABLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    kafka: Mapping[str, str]
    """For the client core, without the prefix."""
    topic: str | None = None
    timestamp_column: str | None = None
    delivery: Delivery = "exactly_once"
    app_id: str | None = None
    app_version: int | None = None
    state_topic: str = STATE_TOPIC
    prefix: str = "tidelog-sink-"
    acks: int = -1
    codec: Codec = Codec.NONE
    batch_bytes: int = 512 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    transaction_timeout_ms: int = 900_000


def parse_sink_options(given: Mapping[str, str], *, stream: bool) -> SinkOptions:
    """OptionError or ConfigError for the first thing that is wrong."""
    kafka = {name[len(KAFKA) :].lower(): text for name, text in given.items() if name.lower().startswith(KAFKA)}
    own = {name: text for name, text in kafka.items() if name in KAFKA_BY_NAME}
    rest = {name: text for name, text in kafka.items() if name not in own}
    if "transactional.id" in rest:
        raise OptionError(
            "kafka.transactional.id is not supported: ids are made by the sink; see transactionalIdPrefix"
        )
    parse_config(rest, prefix=KAFKA)
    tuned = {name: _parse(KAFKA_BY_NAME[name], KAFKA, text) for name, text in own.items()}
    names = [name for name in given if not name.lower().startswith(KAFKA) and name.lower() not in _OF_SPARK]
    values = {_known(name).name: _parse(_known(name), "", given[name]) for name in names}
    delivery: Delivery = values.get("delivery", "exactly_once")
    if delivery == "exactly_once" and tuned.get("acks", -1) != -1:
        raise OptionError(f"kafka.acks={own['acks']}: delivery=exactly_once needs all; allowed with at_least_once")
    _check_application(values, delivery, stream)
    return SinkOptions(
        kafka=rest,
        topic=values.get("topic"),
        timestamp_column=values.get("timestampColumn"),
        delivery=delivery,
        app_id=values.get("txnAppId"),
        app_version=values.get("txnVersion"),
        state_topic=values.get("stateTopic", STATE_TOPIC),
        prefix=values.get("transactionalIdPrefix", "tidelog-sink-"),
        acks=tuned.get("acks", -1),
        codec=tuned.get("compression.type", Codec.NONE),
        batch_bytes=tuned.get("batch.size", 512 * 1024),
        buffer_bytes=tuned.get("buffer.memory", 32 * 1024 * 1024),
        transaction_timeout_ms=tuned.get("transaction.timeout.ms", 900_000),
    )


def _check_application(values: Mapping[str, Any], delivery: Delivery, stream: bool) -> None:
    given = [name for name in ("txnAppId", "txnVersion") if name in values]
    if given and stream:
        raise OptionError(f"{given[0]} is for batch writes (df.write); a stream has its query's id and batches")
    if len(given) == 1:
        raise OptionError(f"{given[0]} is given alone; txnAppId and txnVersion belong together")
    if given and delivery != "exactly_once":
        raise OptionError(f"{given[0]} has no meaning with delivery={delivery}; allowed with exactly_once")


def _known(name: str) -> Option:
    if name.lower() in BY_NAME:
        return BY_NAME[name.lower()]
    near = difflib.get_close_matches(name.lower(), BY_NAME, n=1, cutoff=0.7)
    hint = f"; did you mean {BY_NAME[near[0]].name}?" if near else "."
    allowed = ", ".join(option.name for option in TABLE)
    raise OptionError(f"{name} is not an option of the sink tidelog{hint} Allowed are {allowed} and kafka.*")


def _parse(option: Option, prefix: str, text: str) -> Any:
    try:
        return option.parse(text)
    except (ValueError, KeyError):
        raise OptionError(f"{prefix}{option.name}={text}: expected {option.allowed}") from None
