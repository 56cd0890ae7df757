"""What the sink is asked for: every option's values, and errors that name the key and what is allowed."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.protocol.compression import Codec
from tidelog.spark.sink.options import SinkOptions, parse_sink_options
from tidelog.spark.sink.shape import check_columns
from tidelog.spark.source.options import OptionError

TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "map": MapType(StringType(), StringType()),
}
NEEDED = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parse(stream: bool = False, **given: str) -> SinkOptions:
    return parse_sink_options(
        {**NEEDED, **{name.replace("__", "."): text for name, text in given.items()}}, stream=stream
    )


def schema(columns: str) -> StructType:
    pairs = [column.split() for column in columns.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def test_defaults() -> None:
    assert parse() == SinkOptions(kafka={"bootstrap.servers": "127.0.0.1:9092"})
    assert parse().delivery == "exactly_once"


def test_values_are_taken_whatever_the_case_of_names() -> None:
    options = parse(
        TOPIC="t",
        Delivery="at_least_once",
        stateTopic="state",
        transactionalIdPrefix="us-",
        kafka__acks="1",
        KAFKA__compression__type="zstd",
        kafka__batch__size="1000",
        kafka__buffer__memory="5000",
        kafka__transaction__timeout__ms="60000",
        kafka__linger__ms="5",
        kafka__client__id="me",
    )
    assert options == SinkOptions(
        kafka={"bootstrap.servers": "127.0.0.1:9092", "client.id": "me"},
        topic="t",
        delivery="at_least_once",
        state_topic="state",
        prefix="us-",
        acks=1,
        codec=Codec.ZSTD,
        batch_bytes=1000,
        buffer_bytes=5000,
        transaction_timeout_ms=60_000,
    )
    assert parse(txnAppId="a", txnVersion="3").app_version == 3


def test_what_is_sparks_own_is_let_pass() -> None:
    assert parse(stream=True, checkpointLocation="/c", queryName="q") == parse()


@pytest.mark.parametrize(
    ("given", "stream", "message"),
    [
        ({"deliver": "x"}, False, "deliver is not an option of the sink tidelog; did you mean delivery?"),
        ({"pathology": "x"}, False, "pathology is not an option of the sink tidelog. Allowed are topic, delivery, "),
        ({"delivery": "once"}, False, "delivery=once: expected exactly_once or at_least_once"),
        ({"topic": "a b"}, False, "topic=a b: expected the name of a topic"),
        ({"txnVersion": "1"}, False, "txnVersion is given alone; txnAppId and txnVersion belong together"),
        ({"txnAppId": "a", "txnVersion": "-1"}, False, "txnVersion=-1: expected a whole number from 0"),
        ({"txnAppId": "a", "txnVersion": "1"}, True, "txnAppId is for batch writes"),
        ({"txnAppId": "a", "txnVersion": "1", "delivery": "at_least_once"}, False, "allowed with exactly_once"),
        ({"kafka__acks": "1"}, False, "kafka.acks=1: delivery=exactly_once needs all"),
        ({"kafka__acks": "2"}, False, "kafka.acks=2: expected all, -1, 1 or 0"),
        ({"kafka__compression__type": "zip"}, False, "expected none, gzip, snappy, lz4, zstd"),
        ({"kafka__batch__size": "0"}, False, "kafka.batch.size=0: expected a whole number from 1 to"),
        ({"kafka__transaction__timeout__ms": "10"}, False, "expected a whole number from 1000 to"),
        ({"kafka__transactional__id": "x"}, False, "kafka.transactional.id is not supported: ids are made by the sink"),
        ({"kafka__btach__size": "1"}, False, "kafka.btach.size is not a config of this client"),
        ({"kafka__bootstrap__servers": ""}, False, "kafka.bootstrap.servers is missing"),
    ],
)
def test_errors_name_the_key_and_what_is_allowed(given: dict[str, str], stream: bool, message: str) -> None:
    with pytest.raises(Exception) as caught:
        parse(stream, **given)
    assert message in str(caught.value)


def test_columns_may_come_in_any_case_and_others_are_left_alone() -> None:
    assert check_columns(schema("VALUE string, more int, Key binary, topic string"), None) == ("topic", "Key", "VALUE")
    assert check_columns(schema("value binary"), "t") == ("value",)
    assert check_columns(schema("value binary, At timestamp"), "t", "at") == ("value",)
    for columns, kind in (("value binary, at bigint", "bigint"), ("value binary", "missing")):
        with pytest.raises(OptionError, match=f"timestampColumn=at: the column is {kind}; expected one of type"):
            check_columns(schema(columns), "t", "at")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("key string, n int", "the column value is not found; the frame has key, n"),
        ("value string", "Give the option topic, or a column topic"),
        ("value int, topic string", "the column value is of type int; expected string or binary"),
        ("value string, topic int", "the column topic is of type int; expected string"),
        ("value string, topic string, partition bigint", "the column partition is of type bigint; expected int"),
        ("value string, topic string, headers map", "expected array<struct<key:string,value:binary>>"),
    ],
)
def test_columns_that_do_not_fit_are_named(columns: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_columns(schema(columns), None)
    assert message in str(caught.value)
