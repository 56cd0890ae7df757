"""The file of a pipeline: what it becomes, and what is said of one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("yaml")

from hypothesis import example as with_example
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.spark.pipeline import Pipeline, PipelineError, aggregate, ingest, load, sql
from tidelog.spark.pipeline.decoding import Decode
from tidelog.spark.pipeline.example import example
from tidelog.spark.pipeline.kinds import KINDS
from tidelog.spark.pipeline.kinds.aggregate import Aggregate, Measure, Window
from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.kinds.sql import Sql
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.model import Audit

BASE = Path("/somewhere")

GOOD = """\
name: shop
bootstrap.servers: 127.0.0.1:9092
lake: ./lake
kafka:
  sasl.password: ${env:PASSWORD}
flows:
  orders:
    kind: ingest
    topics: [orders]
    decode: {wire: json, schema: "id BIGINT"}
  large:
    kind: sql
    from: orders
    query: SELECT * FROM orders
  counts:
    kind: aggregate
    from: large
    watermark: 1h30m
    window: {sliding: 10m, every: 1m}
    by: [payload.country]
    measures: {orders: count, total: sum(payload.amount)}
"""


def parse(text: str) -> Pipeline:
    return load_text(text, BASE, "shop.yaml", {"PASSWORD": "s3cret"})


def errors(text: str) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        parse(text)
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("decode", "subject"),
    [
        ("registry: http://r", "orders-value"),
        ("registry: http://r, column: key", "orders-key"),
        ("registry: http://r, subject: shop.Order", "shop.Order"),
        ("registry: http://r, schema: '\"long\"'", None),
    ],
)
def test_the_schema_is_looked_for_where_serializers_put_it(decode: str, subject: str | None) -> None:
    text = GOOD.replace('{wire: json, schema: "id BIGINT"}', "{wire: confluent, " + decode + "}")
    flow = parse(text).flows["orders"]
    assert isinstance(flow, Ingest)
    assert flow.decode is not None
    assert flow.decode.subject == subject


def test_a_good_file_becomes_typed_flows_in_the_order_of_reading() -> None:
    # The aggregate stands first in the file, and last in the order.
    head, _, flows = GOOD.partition("flows:\n")
    first, second = flows.split("  counts:\n")
    pipeline = parse(f"{head}flows:\n  counts:\n{second}{first}")
    assert list(pipeline.flows) == ["orders", "large", "counts"]
    orders, large, counts = pipeline.flows.values()
    assert isinstance(orders, Ingest)
    assert (orders.topics, orders.starting, orders.trigger.every_ms) == (("orders",), "earliest", 10_000)
    assert orders.decode == Decode(wire="json", schema="id BIGINT")
    assert orders.table.path == "/somewhere/lake/orders"
    assert orders.kafka == {"sasl.password": "s3cret"}
    assert isinstance(large, Sql)
    assert large.inputs == ("orders",)
    assert isinstance(counts, Aggregate)
    assert counts.watermark_ms == 5_400_000
    assert counts.window == Window(kind="sliding", size_ms=600_000, step_ms=60_000)
    assert counts.by == (("country", "payload.country"),)
    assert counts.measures[1] == Measure(name="total", function="sum", argument="payload.amount")
    assert counts.late.path == "/somewhere/lake/counts_late"
    assert pipeline.work == Path("/somewhere/.tidelog/shop")


def test_all_errors_come_at_once_with_line_key_and_what_is_allowed() -> None:
    assert errors(
        """\
name: Shop
bootstrap.servers: localhost
lake: lake
defaults:
  formt: delta
flows:
  orders:
    kind: ingst
  other:
    kind: ingest
    topics: [a]
    format: detla
    trigger: 10
    max_records: -5
  large:
    kind: sql
    from: odrers
    query: SELECT * FROM odrers
"""
    ) == [
        "line 1: name: 'Shop' is no name; it takes a small letter, then small letters, digits and _, at most 63",
        "line 2: bootstrap.servers: must be HOST:PORT, or several with commas",
        "line 5: defaults.formt: there is no such key; did you mean 'format'? "
        "allowed: format, trigger, maintenance, restart",
        "line 8: flows.orders.kind: 'ingst' is not one of its values; did you mean 'ingest'? "
        f"allowed: {', '.join(KINDS)}",
        "line 12: flows.other.format: 'detla' is not one of its values; did you mean 'delta'? "
        "allowed: delta, parquet, iceberg",
        "line 13: flows.other.trigger: '10' is no duration; "
        "write a number with a unit (ms, s, m, h, d), such as 500ms, 10s or 1h30m",
        "line 14: flows.other.max_records: '-5' is not a whole number of at least 1",
        "line 17: flows.large.from: there is no flow 'odrers'; did you mean 'orders'? allowed: orders, other",
    ]


def test_missing_keys_name_an_example() -> None:
    found = errors("flows:\n  a:\n    kind: aggregate\n")
    assert "line 1: the key 'name' is missing, such as name: orders" in found
    assert "line 2: flows.a: the key 'watermark' is missing, such as watermark: 10m" in found
    assert any("the key 'window' is missing, such as window: {tumbling: 1m}" in text for text in found)
    assert any("the key 'measures' is missing" in text for text in found)


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ("{sliding: 10m, every: 1m}", "{sliding: 1m, every: 10m}", "must not be longer than 'sliding'"),
        ("{sliding: 10m, every: 1m}", "{tumbling: 1m, session: 1m}", "must be one of {tumbling: 1m}"),
        ("{sliding: 10m, every: 1m}", "{tumbling: 1m, every: 1m}", "there is no such key"),
        ("sum(payload.amount)", "median(payload.amount)", "allowed: count, sum, min"),
        ("sum(payload.amount)", "sum(*)", "sum needs a column"),
        ("orders: count", "window_end: count", "would be in the table twice"),
        ("orders: count", "country: count", "would be in the table twice"),
        ("[payload.country]", "[upper(payload.country)]", "needs a name: write by: {NAME: upper(payload.country)}"),
        ("from: large", "from: counts", "a flow cannot read itself"),
        ("topics: [orders]", "topics: []", "must not be empty"),
        ("topics: [orders]", "pattern: a\n    topics: b", "name either 'topics'"),
        ("topics: [orders]", "topics: [{a: b}]", "each item must be a text"),
        ('schema: "id BIGINT"', "registry: http://r", "there is no such key"),
        ("wire: json", "wire: confluent, column: vlaue", "did you mean 'value'?"),
        (
            'topics: [orders]\n    decode: {wire: json, schema: "id BIGINT"}',
            'topics: [a, b]\n    decode: {wire: confluent, registry: "http://r"}',
            "needs a 'subject'",
        ),
        ("SELECT * FROM orders", "SELECT * FROM payments", "the query does not read 'orders'"),
        ("lake: ./lake", "lake: ./lake\nlake: ./sea", "line 4: lake: the key is given twice; it is on line 3 already"),
        ("lake: ./lake", "work: s3://a\nlake: ./lake", "must be a directory"),
        ("lake: ./lake", "audit: {windw: 1m}\nlake: l", "did you mean 'window'? allowed: topic, window"),
        ("lake: ./lake", "audit: {window: 10}\nlake: l", "line 3: audit.window: '10' is no duration"),
        ("lake: ./lake", "audit: {window: 10ms}\nlake: l", "'10ms' is too short; at least 1000ms"),
        ("lake: ./lake", "audit: {topic: a b}\nlake: l", "line 3: audit.topic: is no name of a topic"),
        ("lake: ./lake", "audit: yes\nlake: l", "line 3: audit: must be a section of keys, not a text"),
        ("lake: ./lake", "spark: {shuffle: 2}\nlake: l", "their names begin with spark."),
        ("${env:PASSWORD}", "${env:PASSWROD}", "the environment variable PASSWROD is not set"),
        ("${env:PASSWORD}", "${PASSWORD}", "write ${env:NAME}"),
        ("topics: [orders]", "topics: [orders]\n    table: large", "is the table of 'orders' already"),
    ],
)
def test_what_is_said(wrong: str, right: str, said: str) -> None:
    assert wrong in GOOD
    found = errors(GOOD.replace(wrong, right, 1))
    assert any(said in text for text in found), found
    assert all(text.startswith("line ") for text in found), found


def test_where_producers_and_consumers_publish_what_they_count() -> None:
    assert parse(GOOD).audit is None
    assert parse("audit: {}\n" + GOOD).audit == Audit(topic="tidelog-audit", window_ms=600_000)
    assert parse("audit: {topic: counts, window: 30s}\n" + GOOD).audit == Audit(topic="counts", window_ms=30_000)
    flows = {"orders": ingest(topics=["orders"])}
    options = {"name": "shop", "bootstrap_servers": "127.0.0.1:9092", "lake": "lake", "flows": flows}
    assert Pipeline.of(**options, audit={"window": "1m"}).audit == Audit(window_ms=60_000)
    with pytest.raises(PipelineError, match=r"audit\.window: '1x' is no duration"):
        Pipeline.of(**options, audit={"window": "1x"})


def test_a_circle_is_refused_by_all_its_names() -> None:
    circle = GOOD.replace(
        "from: orders\n    query: SELECT * FROM orders", "from: other\n    query: SELECT * FROM other"
    )
    circle += "  other: {kind: sql, from: large, query: SELECT * FROM large}\n"
    (said,) = errors(circle)
    assert said == "line 13: flows.large.from: the flows read each other in a circle: large <- other <- large"


def test_an_aggregate_cannot_be_read() -> None:
    (said,) = errors(GOOD + "  more: {kind: sql, from: counts, query: SELECT * FROM counts}\n")
    assert "'counts' is an aggregate" in said
    assert said.endswith("allowed: orders, large")


def test_a_secret_is_shown_neither_by_an_error_nor_by_repr() -> None:
    pipeline = parse(GOOD)
    assert "s3cret" not in repr(pipeline)
    found = errors(GOOD.replace("topics: [orders]", "topics: [orders]\n    starting: ${env:PASSWORD}"))
    assert found == [
        "line 10: flows.orders.starting: '${env:PASSWORD}' is not one of its values; allowed: earliest, latest"
    ]


def test_a_variable_that_is_not_set_is_one_error() -> None:
    assert errors(GOOD.replace("env:PASSWORD", "env:OTHER")) == [
        "line 5: kafka.sasl.password: the environment variable OTHER is not set"
    ]


def test_a_dollar_can_be_written() -> None:
    assert parse(GOOD.replace("${env:PASSWORD}", "a$${env:B}$c")).kafka == {"sasl.password": "a${env:B}$c"}


def test_the_same_in_python() -> None:
    made = Pipeline.of(
        name="shop",
        bootstrap_servers="127.0.0.1:9092",
        lake="/somewhere/lake",
        work="/somewhere/.tidelog/shop",
        kafka={"sasl.password": "s3cret"},
        flows={
            "orders": ingest(topics=["orders"], decode={"wire": "json", "schema": "id BIGINT"}),
            "large": sql("SELECT * FROM orders", from_="orders"),
            "counts": aggregate(
                from_="large",
                watermark="1h30m",
                window={"sliding": "10m", "every": "1m"},
                by=["payload.country"],
                measures={"orders": "count", "total": "sum(payload.amount)"},
            ),
        },
    )
    read = parse(GOOD)
    assert made.flows == read.flows
    assert (made.name, made.work, made.kafka) == (read.name, read.work, read.kafka)


def test_a_python_file_is_loaded_and_its_errors_have_lines(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "from tidelog.spark.pipeline import Pipeline, ingest\n"
        "pipeline = Pipeline.of(name='shop', bootstrap_servers='h:1', lake='lake',\n"
        "    flows={'a': ingest(topics=['a'])})\n"
    )
    assert load(file).flows["a"].table.path == str(tmp_path / "lake" / "a")
    for text, said in (
        ("\nx = (", "line 2: not Python"),
        ("x = 1\ny = x / 0", "line 2: ZeroDivisionError"),
        ("x = 1", "must leave a Pipeline"),
        (file.read_text().replace("topics=", "topcis="), "line 3: flows.a.topcis: there is no such key"),
    ):
        file.write_text(text)
        with pytest.raises(PipelineError) as caught:
            load(file)
        assert said in str(caught.value)
        assert str(file) in str(caught.value)


def test_the_example_passes_and_has_every_kind(tmp_path: Path) -> None:
    file = tmp_path / "first.yaml"
    file.write_text(example("first", "127.0.0.1:9092", "first.yaml"))
    assert [type(flow).__name__ for flow in load(file).flows.values()] == ["Ingest", "Sql", "Aggregate"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="cannot be read: No such file"):
        load(tmp_path / "none.yaml")


WORDS = sorted({word.strip(" :[]{},") for word in GOOD.replace("\n", " ").split()} - {""})
SCALARS = st.one_of(st.sampled_from(WORDS), st.text(max_size=8), st.just("null"), st.just("&a b"), st.just("*a"))
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: "[" + ", ".join(items) + "]"),
        st.lists(st.tuples(SCALARS, inner), max_size=5).map(
            lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"
        ),
    ),
    max_leaves=25,
)


def never_another_exception(text: str | bytes) -> None:
    try:
        found = load_text(text, BASE, "any.yaml", {"PASSWORD": "s3cret"})
    except PipelineError as error:
        assert error.faults
    else:
        assert isinstance(found, Pipeline)


@given(DOCUMENTS)
@settings(max_examples=100)
@with_example("&a {name: *a, flows: *a}")
@with_example("[" * 3000)
@with_example(
    "a: &a [x,x,x,x,x,x,x,x]\n"
    + "".join(f"{c}: &{c} [*{p},*{p},*{p},*{p},*{p},*{p}]\n" for p, c in zip("abcdefghijk", "bcdefghijkl", strict=True))
)
def test_any_document_is_a_pipeline_or_errors(text: str) -> None:
    never_another_exception(text)


@given(st.binary(max_size=60))
@settings(max_examples=50)
def test_any_bytes_are_a_pipeline_or_errors(content: bytes) -> None:
    never_another_exception(content)


@given(st.data())
@settings(max_examples=100)
def test_a_good_file_with_a_line_changed_is_a_pipeline_or_errors_with_lines(data: st.DataObject) -> None:
    lines = GOOD.splitlines()
    index = data.draw(st.integers(0, len(lines) - 1))
    key = lines[index].partition(":")[0]
    lines[index] = data.draw(st.sampled_from([f"{key}: ", "", lines[index][2:], "  " + lines[index]])) + data.draw(
        DOCUMENTS
    )
    try:
        parse("\n".join(lines))
    except PipelineError as error:
        assert all(fault.line is None or 1 <= fault.line <= len(lines) + 1 for fault in error.faults)
        if error.faults[0].path:
            assert all(fault.line is not None for fault in error.faults), error
