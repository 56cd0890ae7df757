"""The section `dead_letters`: what it becomes, and what is said of one that does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("yaml")

from tidelog.spark.pipeline import Pipeline, PipelineError, ingest
from tidelog.spark.pipeline.kinds.ingest import Ingest, source_options
from tidelog.spark.pipeline.letters.options import DeadLetters
from tidelog.spark.pipeline.load import load_text

HEAD = """\
name: shop
bootstrap.servers: 127.0.0.1:9092
lake: ./lake
flows:
  customers: {kind: ingest, topics: customers}
  orders:
    kind: ingest
    topics: [orders]
    decode: {wire: json, schema: "id BIGINT"}
"""
WHOLE = """\
    dead_letters:
      topic: orders.dead
      rules: {positive: "payload.id > 0"}
      retry:
        topic: orders.retry
        rules: {known: "payload.id IN (SELECT 1 FROM customers)"}
        lookups: customers
        delays: [10s, 10s, 1h30m]
"""


def parse(text: str) -> Ingest:
    flow = load_text(text, Path("/somewhere"), "shop.yaml", {}).flows["orders"]
    assert isinstance(flow, Ingest)
    return flow


def errors(text: str) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        parse(text)
    return [f"{'.'.join(fault.path)}: {fault.text}" for fault in caught.value.faults]


def test_a_section_with_everything() -> None:
    assert parse(HEAD + WHOLE).dead_letters == DeadLetters(
        topic="orders.dead",
        retry_topic="orders.retry",
        rules=(("positive", "payload.id > 0"),),
        retry_rules=(("known", "payload.id IN (SELECT 1 FROM customers)"),),
        delays_ms=(10_000, 10_000, 5_400_000),
        lookups=("customers",),
    )


def test_a_topic_is_enough_and_the_way_back_is_there_without_retries() -> None:
    letters = parse(HEAD + "    dead_letters: {topic: d}\n").dead_letters
    assert letters == DeadLetters(topic="d", retry_topic="d.retry")
    assert parse(HEAD).dead_letters is None


def test_the_same_in_python() -> None:
    letters = {"topic": "orders.dead", "rules": {"good": "key IS NOT NULL"}}
    flows = {"orders": ingest(topics=["orders"], dead_letters=letters)}
    pipeline = Pipeline.of(name="shop", bootstrap_servers="127.0.0.1:1", lake="lake", flows=flows)
    flow = pipeline.flows["orders"]
    assert isinstance(flow, Ingest)
    assert flow.dead_letters is not None
    assert flow.dead_letters.rules == (("good", "key IS NOT NULL"),)


@pytest.mark.parametrize(
    ("was", "by", "error"),
    [
        ("      topic: orders.dead\n", "", "flows.orders.dead_letters: the key 'topic' is missing, such as topic: "),
        ("topic: orders.dead", "topic: a b", "flows.orders.dead_letters.topic: is no name of a topic"),
        ("topic: orders.retry", "topic: orders.dead", "flows.orders.dead_letters.retry.topic: must be another topic"),
        ("topic: orders.dead", "topic: orders", "flows.orders.dead_letters: the topic 'orders' is one that the flow"),
        ("positive:", "decode:", "flows.orders.dead_letters.rules.decode: is no name of a rule"),
        ("known:", "positive:", "flows.orders.dead_letters.retry.rules.positive: is a rule of 'dead_letters' already"),
        ("[10s, 10s, 1h30m]", "[10s, soon]", "flows.orders.dead_letters.retry.delays: must be a list of durations"),
        ("        delays: [10s, 10s, 1h30m]\n", "", "flows.orders.dead_letters.retry: the key 'delays' is missing"),
        ("lookups: customers", "lookups: customer", "flows.orders.dead_letters.retry.lookups: there is no flow"),
        ("delays:", "delay:", "flows.orders.dead_letters.retry.delay: there is no such key; did you mean 'delays'?"),
        ("topics: [orders]", "pattern: orders.*", "flows.orders.dead_letters: the topic 'orders.retry' is one that"),
        ("topics: [orders]", "topics: [orders]\n    isolation: read_uncommitted", "flows.orders.isolation: must be"),
        ("wire: json,", "wire: json, mode: failfast,", "flows.orders.decode.mode: failfast stops the flow"),
    ],
)
def test_what_is_wrong_is_told_by_its_key(was: str, by: str, error: str) -> None:
    text = HEAD + WHOLE
    assert was in text
    found = errors(text.replace(was, by))
    assert [line for line in found if line.startswith(error)], found


def test_nothing_to_die_of_and_topics_of_two_flows_are_faults() -> None:
    alone = HEAD.replace("    decode:", "    # decode:") + "    dead_letters: {topic: d}\n"
    assert errors(alone) == [
        "flows.orders.dead_letters: nothing could become a dead letter: there is no 'decode' and no 'rules'"
    ]
    other = "  more: {kind: ingest, topics: more, dead_letters: {topic: orders.retry, rules: {a: 'true'}}}\n"
    assert errors(HEAD + WHOLE + other) == ["flows.more.dead_letters: 'orders.retry' is a topic of 'orders' already"]


def test_only_the_flows_own_query_reads_the_retry_topic() -> None:
    pipeline = load_text(HEAD + WHOLE, Path("/somewhere"), "shop.yaml", {})
    flow = pipeline.flows["orders"]
    assert isinstance(flow, Ingest)
    own = source_options(pipeline, flow, retries=True)
    assert (own["subscribe"], own["includeHeaders"]) == ("orders,orders.retry", "true")
    others = source_options(pipeline, flow)
    assert (others["subscribe"], others["includeHeaders"]) == ("orders", "false")
    by_pattern = parse((HEAD + WHOLE).replace("topics: [orders]", "pattern: ord[a-z]+"))
    assert source_options(pipeline, by_pattern, retries=True)["subscribePattern"] == r"(?:ord[a-z]+)|orders\.retry"
