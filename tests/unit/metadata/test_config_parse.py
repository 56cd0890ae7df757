from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.metadata.config import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS, ConfigError, Password, parse, to_text
from tidelog.metadata.config.key import ConfigKey, ConfigType, Value


def key_of(kind: ConfigType, validator: str = "-") -> ConfigKey:
    return ConfigKey("some.config", "broker", kind, None, validator, "low", "read-only")


BLANKS = st.text(" \t\r\n\x00", max_size=2)
WORDS = st.text(st.characters(min_codepoint=33, exclude_characters=","), min_size=1, max_size=8)


@given(
    st.one_of(
        st.tuples(st.just("boolean"), st.booleans()),
        st.tuples(st.just("short"), st.integers(-(2**15), 2**15 - 1)),
        st.tuples(st.just("int"), st.integers(-(2**31), 2**31 - 1)),
        st.tuples(st.just("long"), st.integers(-(2**63), 2**63 - 1)),
        st.tuples(st.just("double"), st.floats(allow_nan=False)),
        st.tuples(st.just("string"), WORDS),
        st.tuples(st.just("list"), st.lists(WORDS, unique=True).map(tuple)),
    ),
    BLANKS,
    BLANKS,
)
def test_a_value_survives_being_printed_and_parsed(typed: tuple[ConfigType, Value], before: str, after: str) -> None:
    kind, value = typed
    if isinstance(value, tuple):
        # The separator swallows blanks, and Python's idea of one is wider than Java's.
        value = tuple(item.strip() or "x" for item in value)
    text = to_text(value)
    assert text is not None
    assert parse(key_of(kind), before + text + after) == value


@given(st.sampled_from(["int", "short", "long", "double", "boolean", "list", "class", "string"]), st.text())
def test_any_text_is_a_value_or_a_config_error(kind: ConfigType, text: str) -> None:
    try:
        parse(key_of(kind), text)
    except ConfigError as error:
        assert str(error).startswith("some.config=")


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("log.segment.bytes", "abc", "log.segment.bytes=abc: expected a whole number of at least 1048576"),
        ("log.segment.bytes", "5", "log.segment.bytes=5: expected a whole number of at least 1048576"),
        (
            "log.segment.bytes",
            "1GB",
            "log.segment.bytes=1GB: expected a whole number of at least 1048576 without a unit; 1GB is 1073741824",
        ),
        (
            "log.segment.bytes",
            "2147483648",
            "log.segment.bytes=2147483648: expected a whole number from 1048576 to 2147483647",
        ),
        ("log.retention.ms", "7d", "log.retention.ms=7d: expected a whole number without a unit; 7d is 604800000"),
        ("log.retention.hours", "90m", "log.retention.hours=90m: expected a whole number without a unit"),
        (
            "log.retention.hours",
            "7 days",
            "log.retention.hours=7 days: expected a whole number without a unit; 7 days is 168",
        ),
        ("broker.id", "2147483648", "broker.id=2147483648: expected a whole number from -2147483648 to 2147483647"),
        ("num.partitions", "", "num.partitions=(nothing): expected a whole number of at least 1"),
        ("num.partitions", "1.5", "num.partitions=1.5: expected a whole number of at least 1"),
        ("compression.lz4.level", "18", "compression.lz4.level=18: expected a whole number from 1 to 17"),
        ("compression.gzip.level", "0", "compression.gzip.level=0: expected a whole number from 1 to 9, or -1"),
        ("log.cleaner.min.cleanable.ratio", "2", "log.cleaner.min.cleanable.ratio=2: expected a number from 0 to 1"),
        ("auto.create.topics.enable", "yes", "auto.create.topics.enable=yes: expected true or false"),
        (
            "compression.type",
            "lz5",
            "compression.type=lz5: expected gzip, lz4, producer, snappy, uncompressed or zstd",
        ),
        (
            "group.consumer.migration.policy",
            "sideways",
            "group.consumer.migration.policy=sideways: expected bidirectional, disabled, downgrade or upgrade",
        ),
        (
            "log.cleanup.policy",
            "remove",
            "log.cleanup.policy=remove: expected compact or delete, or a comma-separated list of them, or nothing",
        ),
        (
            "process.roles",
            "",
            "process.roles=(nothing): expected broker or controller, or a comma-separated list of them",
        ),
        ("log.dirs", "a,,b", "log.dirs=a,,b: expected one or more items separated by commas, none of them empty"),
        (
            "metric.reporters",
            "a,,b",
            "metric.reporters=a,,b: expected items separated by commas, none of them empty",
        ),
        ("listeners", "", "listeners=(nothing): expected one or more items separated by commas, none of them empty"),
        (
            "controller.quorum.voters",
            "localhost:9093",
            "controller.quorum.voters=localhost:9093: expected a comma-separated list of id@host:port",
        ),
        (
            "tidelog.http.listener",
            "9100",
            "tidelog.http.listener=9100: expected host:port, or nothing to switch it off",
        ),
        (
            "remote.log.storage.manager.impl.prefix",
            "",
            "remote.log.storage.manager.impl.prefix=(nothing): expected a value that is not empty",
        ),
        ("principal.builder.class", "a b", "principal.builder.class=a b: expected the name of a class"),
    ],
)
def test_a_bad_value_says_what_is_allowed(name: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(BROKER_CONFIGS[name], text)
    assert str(raised.value) == sentence


def test_a_very_long_value_is_not_repeated_whole() -> None:
    with pytest.raises(ConfigError) as raised:
        parse(BROKER_CONFIGS["num.partitions"], "9" * 5000)
    assert str(raised.value) == f"num.partitions={'9' * 200}...: expected a whole number from 1 to 2147483647"
    assert parse(BROKER_CONFIGS["num.partitions"], "0" * 100 + "7") == 7


def test_a_bad_password_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as raised:
        parse(key_of("password", "in a|b"), "secret")
    assert str(raised.value) == "some.config=[hidden]: expected a or b"


def test_topics_and_groups_have_their_own_forms() -> None:
    with pytest.raises(ConfigError) as raised:
        parse(TOPIC_CONFIGS["leader.replication.throttled.replicas"], "1-2")
    assert str(raised.value).endswith("=1-2: expected a comma-separated list of partition:broker, or *")
    with pytest.raises(ConfigError) as raised:
        parse(GROUP_CONFIGS["share.auto.offset.reset"], "soon")
    assert str(raised.value) == (
        "share.auto.offset.reset=soon: expected earliest, latest or by_duration: with an ISO 8601 duration such as"
        " by_duration:PT1H"
    )


def test_a_repeated_item_of_a_list_is_dropped() -> None:
    assert parse(TOPIC_CONFIGS["cleanup.policy"], "delete, compact ,delete") == ("delete", "compact")
    assert parse(TOPIC_CONFIGS["cleanup.policy"], "") == ()


def test_a_password_is_not_shown() -> None:
    value = parse(BROKER_CONFIGS["ssl.key.password"], " secret ")
    assert value == "secret"
    assert isinstance(value, Password)
    assert repr(value) == "[hidden]"
    assert to_text(value) == "[hidden]"


def test_numbers_are_written_as_java_writes_them() -> None:
    shown = [to_text(value) for value in (0.5, 1e7, 12345678.0, 1.7976931348623157e308, 0.001, 0.00099, 1e-5, -0.0)]
    assert shown == ["0.5", "1.0E7", "1.2345678E7", "1.7976931348623157E308", "0.001", "9.9E-4", "1.0E-5", "-0.0"]
