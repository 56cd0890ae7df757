from __future__ import annotations

import pytest

from tidelog.metadata.config import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    BrokerValues,
    effective_group_values,
    effective_topic_values,
)


def test_without_any_setting_every_topic_config_has_its_default() -> None:
    values = effective_topic_values({}, BrokerValues())
    assert set(values) == set(TOPIC_CONFIGS)
    assert (values["retention.ms"], values["segment.ms"], values["flush.ms"]) == (604800000, 604800000, 2**63 - 1)
    assert (values["cleanup.policy"], values["preallocate"], values["min.cleanable.dirty.ratio"]) == (
        ("delete",),
        False,
        0.5,
    )


def test_an_override_beats_the_cluster_which_beats_the_file_which_beats_the_default() -> None:
    def segment_bytes(overrides: dict[str, str], broker: BrokerValues) -> object:
        return effective_topic_values(overrides, broker)["segment.bytes"]

    name = "log.segment.bytes"
    file = {name: "2000000"}
    cluster = {name: "3000000"}
    one = {name: "4000000"}
    assert segment_bytes({}, BrokerValues(file)) == 2000000
    assert segment_bytes({}, BrokerValues(file, {}, cluster)) == 3000000
    assert segment_bytes({}, BrokerValues(file, one, cluster)) == 4000000
    assert segment_bytes({"segment.bytes": "5000000"}, BrokerValues(file, one, cluster)) == 5000000


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-5"}, -1),
    ],
)
def test_the_finest_unit_that_is_set_decides_the_retention(settings: dict[str, str], retention_ms: int) -> None:
    assert effective_topic_values({}, BrokerValues(settings))["retention.ms"] == retention_ms


def test_a_run_time_retention_takes_the_files_hours_out_of_play() -> None:
    broker = BrokerValues({"log.retention.hours": "2"}, {}, {"log.retention.ms": "5"})
    assert effective_topic_values({}, broker)["retention.ms"] == 5
    assert broker["log.retention.hours"] == 168


def test_segment_age_jitter_and_flush_follow_their_chains_too() -> None:
    broker = BrokerValues(
        {"log.roll.hours": "1", "log.roll.jitter.hours": "2", "log.flush.scheduler.interval.ms": "30"}
    )
    values = effective_topic_values({}, broker)
    assert (values["segment.ms"], values["segment.jitter.ms"], values["flush.ms"]) == (3_600_000, 7_200_000, 30)


def test_an_override_of_a_newer_release_is_left_out() -> None:
    assert "some.day.ms" not in effective_topic_values({"some.day.ms": "1"}, BrokerValues())


def test_a_stored_value_that_is_no_longer_allowed_is_left_out() -> None:
    broker = BrokerValues(
        {"log.segment.bytes": "2000000"}, {"log.segment.bytes": "1"}, {"log.segment.bytes": "3000000"}
    )
    assert broker["log.segment.bytes"] == 3000000
    assert effective_topic_values({"segment.bytes": "1"}, broker)["segment.bytes"] == 3000000
    assert effective_group_values({"consumer.session.timeout.ms": "x"}, broker)["consumer.session.timeout.ms"] == 45000


def test_the_defaults_of_a_broker_are_not_changed_by_a_topic() -> None:
    broker = BrokerValues()
    effective_topic_values({"segment.bytes": "1048576"}, broker)
    assert effective_topic_values({}, broker)["segment.bytes"] == 1073741824


def test_a_group_takes_its_own_value_or_the_brokers() -> None:
    broker = BrokerValues({"group.consumer.session.timeout.ms": "46000"})
    assert effective_group_values({}, broker)["consumer.session.timeout.ms"] == 46000
    overrides = {"consumer.session.timeout.ms": "50000"}
    assert effective_group_values(overrides, broker)["consumer.session.timeout.ms"] == 50000
    assert effective_group_values({}, broker)["share.auto.offset.reset"] == "latest"


def test_new_run_time_layers_make_a_new_object() -> None:
    old = BrokerValues({"num.partitions": "3"})
    new = old.with_dynamic({"message.max.bytes": "7"}, {})
    assert (old["message.max.bytes"], new["message.max.bytes"], new["num.partitions"]) == (1048588, 7, 3)


def test_every_broker_config_has_a_value() -> None:
    broker = BrokerValues()
    assert {name: broker[name] for name in BROKER_CONFIGS}["log.dirs"] is None
