"""Which line of a checkpoint is of which ingest flow."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("yaml")

from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.origins import OriginError, origins_of

FILE = """\
name: shop
bootstrap.servers: h:1
lake: lake
flows:
  orders: {kind: ingest, topics: [orders, returns]}
  payments: {kind: ingest, pattern: "pay.*"}
  again: {kind: ingest, topics: orders}
  fresh: {kind: ingest, topics: fresh, starting: latest, dead_letters: {topic: dead, rules: {a: "true"}}}
  large: {kind: sql, from: orders, query: SELECT * FROM orders}
  both: {kind: sql, from: [large, payments], query: SELECT * FROM large JOIN payments USING (key)}
  twice: {kind: sql, from: [orders, again], query: SELECT * FROM orders JOIN again USING (key)}
  paid: {kind: join, left: fresh, right: later, on: [key], within: {after: 1m}, watermark: 1m}
  later: {kind: ingest, topics: fresh, starting: latest}
  self: {kind: sql, from: [orders, large], query: SELECT * FROM orders JOIN large USING (key)}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return load_text(FILE, tmp_path, "shop.yaml", {})


def commit(pipeline: Pipeline, flow: str, *lines: str) -> None:
    for name, text in (("offsets", "\n".join(["v1", "{}", *lines])), ("commits", "v1\n{}")):
        folder = pipeline.work / "checkpoints" / flow / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "0").write_text(text)


def ends(pipeline: Pipeline, flow: str) -> dict[str, dict[str, int] | None]:
    return {
        one.ingest.name: None if one.claim is None else {topic: end for (topic, _), end in one.claim.ends.items()}
        for one in origins_of(pipeline, pipeline.flows[flow])
    }


def test_each_line_is_of_the_flow_whose_topics_it_names(pipeline: Pipeline) -> None:
    commit(pipeline, "both", '{"payed":{"0":7}}', '{"orders":{"0":5}}')
    assert ends(pipeline, "both") == {"orders": {"orders": 5}, "payments": {"payed": 7}}
    commit(pipeline, "large", '{"orders":{"0":5},"returns":{"0":1}}')
    assert ends(pipeline, "large") == {"orders": {"orders": 5, "returns": 1}}


def test_a_flow_that_has_committed_nothing_claims_nothing(pipeline: Pipeline) -> None:
    assert ends(pipeline, "both") == {"orders": None, "payments": None}
    assert ends(pipeline, "fresh") == {"fresh": None}


def test_what_was_read_twice_must_have_come_equally_far(pipeline: Pipeline) -> None:
    commit(pipeline, "self", '{"orders":{"0":5}}', '{"orders":{"0":5}}')
    assert ends(pipeline, "self") == {"orders": {"orders": 5}}
    commit(pipeline, "self", '{"orders":{"0":5}}', '{"orders":{"0":6}}')
    with pytest.raises(OriginError, match="reads 'orders' more than once"):
        ends(pipeline, "self")
    commit(pipeline, "twice", '{"orders":{"0":5}}', '{"orders":{"0":6}}')
    with pytest.raises(OriginError, match="are read by another of its flows too"):
        ends(pipeline, "twice")


def test_sides_of_a_join_are_told_by_their_order_where_both_are_of_one_topic(pipeline: Pipeline) -> None:
    commit(pipeline, "paid", '{"fresh":{"0":5}}', '{"fresh":{"0":9}}')
    (pipeline.work / "starts").mkdir()
    (pipeline.work / "starts" / "paid").write_text('v1\n{}\n{"fresh":{"0":3}}\n{"fresh":{"0":4}}')
    assert ends(pipeline, "paid") == {"fresh": {"fresh": 5}, "later": {"fresh": 9}}
    left, right = origins_of(pipeline, pipeline.flows["paid"])
    assert (left.starts, right.starts) == ({("fresh", 0): 3}, {("fresh", 0): 4})
    # A line of other topics is of no side, whatever its place.
    commit(pipeline, "paid", '{"fresh":{"0":5}}', '{"orders":{"0":9}}')
    with pytest.raises(OriginError, match="no offsets of the topics of 'later'"):
        ends(pipeline, "paid")


def test_a_line_that_nobody_knows_is_an_error(pipeline: Pipeline) -> None:
    commit(pipeline, "both", '{"other":{"0":5}}', '{"payed":{"0":7}}')
    with pytest.raises(OriginError, match="no offsets of the topics of 'orders'"):
        ends(pipeline, "both")


def test_where_a_flow_that_starts_at_the_end_began_must_be_noted(pipeline: Pipeline) -> None:
    commit(pipeline, "fresh", '{"fresh":{"0":5}}')
    with pytest.raises(OriginError, match="where that was is not in"):
        ends(pipeline, "fresh")
    (pipeline.work / "starts").mkdir()
    (pipeline.work / "starts" / "fresh").write_text('v1\n{}\n{"fresh":{"0":3},"dead.retry":{"0":0}}')
    (origin,) = origins_of(pipeline, pipeline.flows["fresh"])
    assert origin.starts == {("fresh", 0): 3, ("dead.retry", 0): 0}
