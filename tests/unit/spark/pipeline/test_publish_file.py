"""publish in a pipeline's file: what it becomes, and what is said of one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("yaml")

from tidelog.spark.pipeline import Pipeline, PipelineError, ingest, publish
from tidelog.spark.pipeline.kinds.aggregate import Aggregate
from tidelog.spark.pipeline.kinds.publish import Publish
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.publishing import ALL_COLUMNS, Creation, Publication, sink_options

GOOD = """\
name: shop
bootstrap.servers: 127.0.0.1:9092
lake: ./lake
kafka: {client.id: shop}
flows:
  orders: {kind: ingest, topics: [orders]}
  counts:
    kind: aggregate
    from: orders
    watermark: 1m
    window: {tumbling: 1m}
    by: [key]
    measures: {value: count}
    publish: {topic: counts, where: value > 3, create: {cleanup.policy: compact}}
  alerts:
    kind: publish
    from: orders
    topic: alerts
    key: payload.user
    headers: {origin: topic}
    create: {partitions: 3, replication.factor: 1, cleanup.policy: compact}
    delivery: at_least_once
    kafka: {compression.type: zstd}
"""


def parse(text: str) -> Pipeline:
    return load_text(text, Path("/somewhere"), "shop.yaml", {})


def errors(text: str) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        parse(text)
    return [str(fault) for fault in caught.value.faults]


def test_a_publish_flow_has_a_topic_and_no_table() -> None:
    flow = parse(GOOD).flows["alerts"]
    assert isinstance(flow, Publish)
    assert flow.publication == Publication(
        topic="alerts",
        key="payload.user",
        headers=(("origin", "topic"),),
        create=Creation(partitions=3, replication_factor=1, configs=(("cleanup.policy", "compact"),)),
        delivery="at_least_once",
        kafka={"client.id": "shop", "compression.type": "zstd"},
    )
    assert (flow.inputs, flow.tables, flow.topics_written) == (("orders",), (), ("alerts",))


def test_a_window_is_a_key_whatever_its_measures_are_called() -> None:
    flow = parse(GOOD).flows["counts"]
    assert isinstance(flow, Aggregate)
    assert flow.publish is not None
    assert (flow.publish.key, flow.publish.value) == ("to_json(struct(window_start, `key`))", ALL_COLUMNS)
    assert flow.topics_written == ("counts",)


def test_the_sink_knows_a_batch_unless_it_may_write_it_twice() -> None:
    once = sink_options(Publication(topic="t", kafka={"acks": "all"}), "h:1", ("q.publish", 7))
    assert once == {
        "kafka.acks": "all",
        "kafka.bootstrap.servers": "h:1",
        "topic": "t",
        "delivery": "exactly_once",
        "txnAppId": "q.publish",
        "txnVersion": "7",
    }
    assert "txnAppId" not in sink_options(Publication(topic="t", delivery="at_least_once"), "h:1", ("q", 7))


def test_the_same_in_python() -> None:
    made = Pipeline.of(
        name="shop",
        bootstrap_servers="127.0.0.1:9092",
        lake="/somewhere/lake",
        flows={
            "orders": ingest(topics=["orders"]),
            "loud": publish(from_="orders", topic="loud", create={"cleanup.policy": "compact"}),
        },
    )
    flow = made.flows["loud"]
    assert isinstance(flow, Publish)
    assert flow.publication.create.configs == (("cleanup.policy", "compact"),)


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ("    topic: alerts\n", "", "the key 'topic' is missing, such as topic: alerts"),
        ("topic: alerts", "topic: a b", "'a b' is no name of a topic"),
        ("topic: alerts", "topic: __consumer_offsets", "is no name of a topic"),
        ("topic: alerts", "topic: alerts\n    tabel: x", "line 19: flows.alerts.tabel: there is no such key"),
        ("topic: alerts", "topic: alerts\n    table: x", "line 19: flows.alerts.table: a publish flow has no table"),
        ("topic: alerts", "topic: alerts\n    format: delta", "flows.alerts.format: a publish flow has no table"),
        ("topic: alerts", "topic: orders", "writes the topic 'orders', which it reads by way of 'orders'"),
        ("topic: counts,", "topic: orders,", "writes the topic 'orders', which it reads by way of 'orders'"),
        ("topics: [orders]", "pattern: al.*", "writes the topic 'alerts', which it reads by way of 'orders'"),
        ("partitions: 3", "partitions: 0", "is not a whole number of at least 1"),
        (
            "{origin: topic}",
            "{tidelog.flow: topic}",
            "flows.alerts.headers.tidelog.flow: is set by the pipeline itself",
        ),
        ("at_least_once", "at_most_once", "allowed: exactly_once, at_least_once"),
        ("topic: counts, where", "topci: counts, where", "did you mean 'topic'?"),
    ],
)
def test_what_is_said(wrong: str, right: str, said: str) -> None:
    assert wrong in GOOD
    found = errors(GOOD.replace(wrong, right, 1))
    assert any(said in text for text in found), found


def test_a_broken_pattern_is_not_the_fault_of_who_publishes() -> None:
    parse(GOOD.replace("topics: [orders]", "pattern: '('"))


def test_what_was_published_is_read_from_the_topic_only() -> None:
    (said,) = errors(GOOD + "  more: {kind: sql, from: alerts, query: SELECT * FROM alerts}\n")
    assert "'alerts' publishes to the topic 'alerts'; read what it reads, or ingest the topic" in said
    assert "its key 'publish'" in errors(GOOD + "  more: {kind: publish, from: counts, topic: more}\n")[0]
