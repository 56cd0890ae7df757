"""The source's options: every rule with its message, and the table that is in the docs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.client.offsets import EARLIEST, LATEST
from tidelog.spark.client_config import ConfigError
from tidelog.spark.offsets import Offsets
from tidelog.spark.source.options import AtTime, Everywhere, Given, SourceOptions, parse_options
from tidelog.spark.source.table import TABLE

BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}


def parse(**given: str) -> SourceOptions:
    return parse_options({**BASE, **given})


def test_names_are_not_case_sensitive_and_values_have_their_types() -> None:
    options = parse_options(
        {
            "KAFKA.bootstrap.servers": "h:1",
            "Subscribe": " a , b,a ",
            "FAILONDATALOSS": "False",
            "maxTriggerDelay": "90s",
            "maxBytesPerTrigger": "64m",
            "maxOffsetsPerTrigger": "10",
            "kafkaConsumer.pollTimeoutMs": "500",
        }
    )
    assert options.topics == ("a", "b")
    assert options.kafka == {"bootstrap.servers": "h:1"}
    assert (options.fail_on_data_loss, options.max_delay_ms, options.max_bytes) == (False, 90_000, 64 << 20)
    assert options.silence_s == 0.5
    assert options.stream_only == ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay")


def test_what_to_read() -> None:
    base = {"kafka.bootstrap.servers": "h:1"}
    assert parse_options({**base, "assign": '{"b": [1, 0, 1], "a": [2]}'}).partitions == (("a", 2), ("b", 0), ("b", 1))
    assert parse_options({**base, "subscribePattern": "a.*"}).pattern == "a.*"
    with pytest.raises(ConfigError, match=r"exactly one of subscribe, subscribePattern, assign says.*none is given"):
        parse_options(base)
    with pytest.raises(ConfigError, match="subscribe and assign are given"):
        parse(assign='{"a": [0]}')


def test_where_to_start_and_end_by_precedence() -> None:
    offsets = '{"a": {"0": 5, "1": -2}, "$ids": {"a": "x"}}'
    times = '{"a": {"0": 7}}'
    assert parse(startingOffsets="Earliest").starting == Everywhere(EARLIEST)
    given = parse(startingOffsets=offsets).starting
    assert given == Given("startingOffsets", Offsets({("a", 0): 5, ("a", 1): -2}, {"a": "x"}))
    both = parse(startingOffsets=offsets, startingOffsetsByTimestamp=times)
    assert both.starting == AtTime("startingOffsetsByTimestamp", {("a", 0): 7})
    every = parse(startingOffsets=offsets, startingOffsetsByTimestamp=times, startingTimestamp="9")
    assert every.starting == AtTime("startingTimestamp", 9)
    assert parse(endingTimestamp="3").ending == AtTime("endingTimestamp", 3)
    assert parse().starting_for("batch") == Everywhere(EARLIEST)
    assert parse().starting_for("stream") == Everywhere(LATEST)


@pytest.mark.parametrize(
    ("mode", "given", "says"),
    [
        ("batch", {"startingOffsets": "latest"}, "startingOffsets=latest reads nothing in a batch"),
        ("batch", {"startingOffsets": '{"a": {"0": -1}}'}, r"startingOffsets: -1 \(latest\) reads nothing"),
        ("batch", {"endingOffsets": "earliest"}, "endingOffsets=earliest"),
        ("batch", {"endingOffsets": '{"a": {"0": -2}}'}, "endingOffsets: -2"),
        ("stream", {"endingOffsets": '{"a": {"0": 5}}'}, "endingOffsets is for batch queries"),
        ("stream", {"endingTimestamp": "5"}, "endingTimestamp is for batch queries"),
    ],
)
def test_what_a_batch_or_a_stream_cannot_do(mode: str, given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(**given).starting_for(mode)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"startingOffset": "earliest"}, r"did you mean startingOffsets\? Allowed are subscribe"),
        ({"colour": "red"}, r"colour is not an option of the source tidelog\. Allowed are"),
        ({"bootstrap.servers": "h:1"}, r"did you mean kafka\.bootstrap\.servers\?"),
        ({"startingOffsets": "soon"}, "startingOffsets=soon: expected earliest, latest .* not JSON"),
        ({"startingOffsets": '{"a": 5}'}, "not a map from partitions to numbers"),
        ({"startingOffsets": '{"a": {"x": 5}}'}, "'x': 5 is not a partition"),
        ({"startingOffsets": '{"a": {"0": "5"}}'}, "is not a partition with a number"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets: -3 for a-0"),
        ({"startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "startingOffsetsByTimestamp: -1 for a-0"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "expected error or latest"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss=maybe: expected true or false"),
        ({"minPartitions": "0"}, "minPartitions=0: expected a whole number from 1"),
        ({"maxTriggerDelay": "soon"}, "expected a time such as"),
        ({"maxBytesPerTrigger": "5 parsecs"}, "maxBytesPerTrigger=5 parsecs: expected bytes"),
        ({"isolation": "none"}, "expected read_committed or read_uncommitted"),
        ({"isolation": "read_committed", "kafka.isolation.level": "read_uncommitted"}, "contradict each other"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger=5 is more than"),
        ({"subscribe": " , "}, "subscribe= , : expected topics"),
        ({"kafka.group.idd": "x"}, r"did you mean kafka\.group\.id\?"),
    ],
)
def test_errors_name_the_option_and_what_is_allowed(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(**given)


def test_bad_selections() -> None:
    for name, text, says in [
        ("assign", '{"a": 0}', "assign=.*expected"),
        ("assign", '{"a": [-1]}', "assign=.*expected"),
        ("assign", "[]", "assign=.*expected"),
        ("subscribePattern", "(", r"subscribePattern=\(: not a regular expression"),
    ]:
        with pytest.raises(ConfigError, match=says):
            parse_options({"kafka.bootstrap.servers": "h:1", name: text})


def test_the_docs_have_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    documented = {name: (allowed, default, use, meaning) for name, allowed, default, use, meaning in rows}
    for option in TABLE:
        allowed = f"`{option.allowed}`" if option.allowed.startswith("{") else option.allowed
        assert documented.get(option.name) == (allowed, option.default, option.use, option.meaning), option.name


def test_options_are_parsed_without_the_client() -> None:
    """Spark does so in a process that does nothing else."""
    code = "import sys, tidelog.spark.source.options; print(*{'asyncio', 'tidelog.client.cluster'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_segments_need_to_be_told_where_they_are() -> None:
    assert parse().log_dirs == ()
    assert parse(read="Segments", logDirs="/a, /b/c,").log_dirs == ("/a", "/b/c")
    assert parse(read="broker", logDirs="/a").log_dirs == ()
    with pytest.raises(ConfigError, match="read=segments needs logDirs: absolute paths with commas between"):
        parse(read="segments")
    for text in ("data", " , ", "/a,b"):
        with pytest.raises(ConfigError, match=f"logDirs={text}: expected absolute paths with commas between"):
            parse(read="segments", logDirs=text)
    with pytest.raises(ConfigError, match="read=files: expected broker or segments"):
        parse(read="files")
