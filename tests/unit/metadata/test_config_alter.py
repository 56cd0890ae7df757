from __future__ import annotations

import pytest

from tidelog.metadata.config import BrokerValues, Scope
from tidelog.metadata.config.alter import (
    INVALID_CONFIG,
    INVALID_REQUEST,
    Change,
    Op,
    Refusal,
    altered,
    overrides_of_new_topic,
    replaced,
)


def set_(name: str, value: str | None) -> Change:
    return Change(name, Op.SET, value)


def test_set_and_delete() -> None:
    current = {"retention.ms": "5", "segment.ms": "6"}
    result = altered("topic", current, [set_("retention.ms", "7"), Change("segment.ms", Op.DELETE, None)])
    assert result == {"retention.ms": "7"}
    assert current == {"retention.ms": "5", "segment.ms": "6"}


def test_append_and_subtract_start_from_the_default() -> None:
    appended = altered("topic", {}, [Change("cleanup.policy", Op.APPEND, "compact")])
    assert appended == {"cleanup.policy": "delete,compact"}
    assert altered(
        "topic", {"cleanup.policy": "delete,compact"}, [Change("cleanup.policy", Op.SUBTRACT, "delete")]
    ) == {"cleanup.policy": "compact"}
    assert altered("topic", {}, [Change("cleanup.policy", Op.APPEND, "delete")]) == {"cleanup.policy": "delete"}


def test_what_is_no_longer_known_can_be_deleted() -> None:
    assert altered("topic", {"old.config": "1"}, [Change("old.config", Op.DELETE, None)]) == {}
    assert altered("topic", {}, [Change("old.config", Op.DELETE, None)]) == {}


@pytest.mark.parametrize(
    ("scope", "change", "code", "message"),
    [
        (
            "topic",
            set_("retention.m", "5"),
            INVALID_CONFIG,
            "retention.m is not a known config; did you mean retention.ms?",
        ),
        ("topic", set_("nonsense", "5"), INVALID_CONFIG, "nonsense is not a known config"),
        (
            "topic",
            set_("log.retention.hours", "5"),
            INVALID_CONFIG,
            "log.retention.hours is a config of the broker; for a topic it is called retention.ms",
        ),
        ("topic", set_("node.id", "5"), INVALID_CONFIG, "node.id is a config of the broker, not of a topic"),
        (
            "topic",
            set_("message.format.version", "2.8"),
            INVALID_CONFIG,
            "message.format.version was removed in Kafka 4.0 and has no effect",
        ),
        (
            "topic",
            set_("segment.bytes", "5"),
            INVALID_CONFIG,
            "segment.bytes=5: expected a whole number of at least 1048576",
        ),
        ("topic", set_("segment.bytes", None), INVALID_REQUEST, "segment.bytes needs a value; to remove it, delete it"),
        (
            "topic",
            Change("segment.bytes", Op.APPEND, "5"),
            INVALID_CONFIG,
            "cannot append to segment.bytes: it is not a list",
        ),
        (
            "topic",
            Change("segment.bytes", Op.SUBTRACT, "5"),
            INVALID_CONFIG,
            "cannot subtract from segment.bytes: it is not a list",
        ),
        (
            "topic",
            Change("segment.bytes", 9, "5"),
            INVALID_REQUEST,
            "9 is not an operation: 0 set, 1 delete, 2 append, 3 subtract",
        ),
        (
            "topic",
            Change("cleanup.policy", Op.APPEND, "burn"),
            INVALID_CONFIG,
            "cleanup.policy=delete,burn: expected compact or delete, or a comma-separated list of them, or nothing",
        ),
        (
            "topic",
            set_("max.compaction.lag.ms", "1"),
            INVALID_CONFIG,
            "min.compaction.lag.ms=60000 must not be greater than max.compaction.lag.ms=1",
        ),
        (
            "topic",
            set_("remote.storage.enable", "true"),
            INVALID_CONFIG,
            "remote.storage.enable=true: there is no tiered storage yet",
        ),
        (
            "broker",
            set_("node.id", "5"),
            INVALID_REQUEST,
            "node.id cannot be changed while the broker runs: set it at start",
        ),
        (
            "broker",
            set_("log.segment.bytes", "5"),
            INVALID_REQUEST,
            "log.segment.bytes=5: expected a whole number of at least 1048576",
        ),
        (
            "broker",
            set_("ssl.keystore.type", "JKS"),
            INVALID_REQUEST,
            "ssl.keystore.type can be changed only for one listener: listener.name.<listener>.ssl.keystore.type",
        ),
        (
            "broker",
            set_("segment.bytes", "5"),
            INVALID_CONFIG,
            "segment.bytes is a config of topics, not of the broker; its default for all topics is log.segment.bytes",
        ),
        (
            "group",
            set_("consumer.session.timeout.ms", "1"),
            INVALID_CONFIG,
            "consumer.session.timeout.ms=1 must not be less than group.consumer.min.session.timeout.ms=45000",
        ),
        (
            "group",
            set_("consumer.heartbeat.interval.ms", "60000"),
            INVALID_CONFIG,
            "consumer.heartbeat.interval.ms=60000 must not be greater than"
            " group.consumer.max.heartbeat.interval.ms=15000",
        ),
        (
            "group",
            set_("consumer.sesion.timeout.ms", "1"),
            INVALID_CONFIG,
            "consumer.sesion.timeout.ms is not a known config; did you mean consumer.session.timeout.ms?",
        ),
    ],
)
def test_a_refusal_has_kafkas_code_and_says_why(scope: Scope, change: Change, code: int, message: str) -> None:
    current = {"min.compaction.lag.ms": "60000"} if scope == "topic" else {}
    assert altered(scope, current, [change]) == Refusal(code, message)


def test_a_groups_heartbeat_must_be_shorter_than_its_session() -> None:
    broker = BrokerValues(
        {"group.consumer.max.heartbeat.interval.ms": "50000", "group.consumer.min.session.timeout.ms": "1000"}
    )
    change = set_("consumer.heartbeat.interval.ms", "45000")
    assert altered("group", {}, [change], broker=broker) == Refusal(
        INVALID_CONFIG, "consumer.heartbeat.interval.ms=45000 must be less than consumer.session.timeout.ms=45000"
    )


def test_a_name_twice_in_one_request_is_refused() -> None:
    refused = altered("topic", {}, [set_("retention.ms", "5"), set_("retention.ms", "6")])
    assert refused == Refusal(INVALID_REQUEST, "retention.ms is named twice in one request")


def test_one_bad_change_refuses_all() -> None:
    assert isinstance(altered("topic", {}, [set_("retention.ms", "5"), set_("segment.bytes", "6")]), Refusal)


def test_what_belongs_to_one_broker_cannot_be_changed_for_all() -> None:
    listeners = set_("listeners", "PLAINTEXT://127.0.0.1:9092")
    assert altered("broker", {}, [listeners]) == {"listeners": "PLAINTEXT://127.0.0.1:9092"}
    assert altered("broker", {}, [listeners], cluster_wide=True) == Refusal(
        INVALID_REQUEST, "listeners can be changed only for one broker: name its id"
    )
    segment = set_("log.segment.bytes", "2000000")
    assert altered("broker", {}, [segment], cluster_wide=True) == {"log.segment.bytes": "2000000"}


def test_a_listeners_own_setting_is_checked_by_its_base_name() -> None:
    name = "listener.name.plaintext.max.connections"
    assert altered("broker", {}, [set_(name, "5")]) == {name: "5"}
    assert altered("broker", {}, [set_(name, "x")]) == Refusal(
        INVALID_REQUEST, f"{name}=x: expected a whole number of at least 0"
    )


def test_a_mechanisms_own_setting_is_known_too() -> None:
    name = "listener.name.inside.scram-sha-256.sasl.jaas.config"
    assert altered("broker", {}, [set_(name, "x")]) == {name: "x"}


def test_the_throttles_exist_only_at_run_time() -> None:
    name = "leader.replication.throttled.rate"
    assert altered("broker", {}, [set_(name, "5")]) == {name: "5"}


def test_replacing_checks_the_whole_map() -> None:
    assert replaced("topic", {"retention.ms": "5"}) == {"retention.ms": "5"}
    assert replaced("topic", {"retention.ms": None}) == Refusal(
        INVALID_REQUEST, "retention.ms needs a value; to remove it, delete it"
    )


def test_a_new_topic_gets_what_it_names() -> None:
    assert overrides_of_new_topic({"retention.ms": "5"}) == {"retention.ms": "5"}
    assert overrides_of_new_topic({"retention.ms": None}) == Refusal(
        INVALID_CONFIG, "retention.ms needs a value; to take the default, leave it out"
    )
