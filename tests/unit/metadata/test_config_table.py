from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidelog.metadata.config import BROKER_CONFIGS, CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS, parse
from tidelog.metadata.config.honoured import HONOURED, NOT_YET
from tidelog.metadata.config.key import ConfigKey
from tidelog.metadata.config.own import DEFAULTS
from tidelog.metadata.config.texts import texts
from tools import write_config_docs

ALL: list[ConfigKey] = [
    key for table in (BROKER_CONFIGS, TOPIC_CONFIGS, GROUP_CONFIGS, CLIENT_METRICS_CONFIGS) for key in table.values()
]
DOCS = Path(__file__).parents[3] / "docs"


def test_the_table_holds_every_config_of_kafka_4_3_1() -> None:
    kafkas = [key for key in BROKER_CONFIGS.values() if not key.name.startswith("tidelog.")]
    assert len([key for key in kafkas if not key.dynamic_only]) == 360
    assert len([key for key in kafkas if key.internal]) == 20
    assert {key.name for key in kafkas if key.dynamic_only} == {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
    assert (len(TOPIC_CONFIGS), len(GROUP_CONFIGS), len(CLIENT_METRICS_CONFIGS)) == (34, 17, 3)


def test_a_line_of_the_table_is_read_whole() -> None:
    key = TOPIC_CONFIGS["retention.ms"]
    assert (key.scope, key.type, key.default, key.importance, key.honoured) == (
        "topic",
        "long",
        "604800000",
        "medium",
        True,
    )
    assert [(synonym.name, synonym.factor) for synonym in key.synonyms] == [
        ("log.retention.ms", 1),
        ("log.retention.minutes", 60_000),
        ("log.retention.hours", 3_600_000),
    ]
    assert BROKER_CONFIGS["listeners"].update_mode == "per-broker"
    assert BROKER_CONFIGS["ssl.keystore.type"].per_listener
    assert BROKER_CONFIGS["node.id"].required_in_kafka


def test_a_name_that_is_not_there_is_not_found() -> None:
    assert "retention.ms" not in BROKER_CONFIGS
    with pytest.raises(KeyError):
        BROKER_CONFIGS["retention.ms"]


def test_every_default_passes_its_own_validator() -> None:
    for key in ALL:
        if key.default is not None:
            parse(key, key.default)


def test_every_synonym_is_a_broker_config() -> None:
    assert {synonym.name for key in ALL for synonym in key.synonyms} <= set(BROKER_CONFIGS)


def test_what_is_honoured_exists() -> None:
    names = {key.name for key in ALL}
    assert names >= HONOURED
    assert set(NOT_YET) <= HONOURED


def test_what_the_code_reads_is_honoured() -> None:
    """Whoever makes the code act on another config adds it to HONOURED, or the node warns that it has no effect."""
    names = {key.name for key in ALL}
    source = DOCS.parent / "src/tidelog"
    # Spark and the client core are clients: they know options of Kafka's clients, some of which have the same names.
    elsewhere = ("metadata/config", "spark", "client/security_config.py")
    for path in source.rglob("*.py"):
        if not any(path.is_relative_to(source / part) for part in elsewhere):
            read = set(re.findall(r"""["']([a-z0-9]+(?:\.[a-z0-9]+)+)["']""", path.read_text(encoding="utf-8"))) & names
            assert read <= HONOURED, path


def test_every_config_has_one_line_of_documentation_and_no_line_is_left_over() -> None:
    for key in ALL:
        assert key.doc.endswith("."), key.name
        assert 12 < len(key.doc) < 180, key.name
    assert {name.rpartition("/")[2] for name in texts()} == {key.name for key in ALL}


def test_the_page_of_configs_is_current() -> None:
    assert write_config_docs.TARGET.read_text(encoding="utf-8") == write_config_docs.page(), (
        "run python -m tools.write_config_docs"
    )


def test_every_default_that_differs_from_kafkas_is_explained() -> None:
    page = (DOCS / "differences.md").read_text(encoding="utf-8")
    for name, ours in DEFAULTS.items():
        assert BROKER_CONFIGS[name].default == ours != BROKER_CONFIGS[name].kafka_default
        assert f"`{name}`" in page
    differing = {key.name for key in ALL if key.default != key.kafka_default and not key.name.startswith("tidelog.")}
    assert differing == set(DEFAULTS)
