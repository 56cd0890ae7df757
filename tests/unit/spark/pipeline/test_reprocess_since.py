"""From where a flow is rebuilt, and what the log must still have for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")
pytest.importorskip("pyarrow")

from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.reprocess.claims import Reach, reach_of
from tidelog.spark.pipeline.reprocess.reprocessing import check_flow
from tidelog.spark.pipeline.reprocess.shadow import plan_of, shadow_of
from tidelog.spark.pipeline.reprocess.since import ReprocessError, check_log, parse_since, resolve

A, B = ("orders", 0), ("orders", 1)
LIVE = Reach(batch=3, least={A: 100, B: 50}, most={A: 100, B: 50}, topic_ids={"orders": "id"})
FILE = """\
name: shop
bootstrap.servers: 127.0.0.1:1
lake: lake
flows:
  orders: {kind: ingest, topics: [orders], commit_group: shop}
  refunds: {kind: ingest, topics: [refunds]}
  large: {kind: sql, from: orders, query: SELECT * FROM orders}
  both: {kind: sql, from: [orders, refunds], query: SELECT orders.* FROM orders JOIN refunds}
  minutes: {kind: aggregate, from: large, watermark: 1m, window: {tumbling: 1m}, measures: {number: count}}
  loud: {kind: publish, from: orders, topic: loud}
  named: {kind: join, left: orders, right: {table: large}, on: offset}
"""


class FakeLink:
    def __init__(self, starts: dict[Any, int], ids: dict[str, str] | None = None) -> None:
        self._starts = starts
        self._ids = ids or {"orders": "id"}

    def earliest(self, partitions: Any) -> dict[Any, int]:
        return {at: self._starts[at] for at in partitions}

    def topic_ids(self, topics: Any) -> dict[str, str]:
        return {topic: self._ids[topic] for topic in topics}

    def at_times(self, times: dict[Any, int]) -> dict[Any, int | None]:
        return {A: 70, B: None} if set(times.values()) == {1000} else dict.fromkeys(times, 10_000)


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("2026-01-31", 1_769_817_600_000),
        ("2026-01-31T12:00:00+02:00", 1_769_853_600_000),
        ('{"orders": {"0": 12}}', {A: 12}),
    ],
)
def test_a_time_or_offsets(text: str, since: Any) -> None:
    assert parse_since(text) == since


@pytest.mark.parametrize("text", ["yesterday", "{", '{"orders": 3}', '{"orders": {"0": "x"}}', "[]"])
def test_what_is_neither(text: str) -> None:
    with pytest.raises(ReprocessError, match="is not a time"):
        parse_since(text)


def test_a_time_never_leads_behind_what_was_landed() -> None:
    link: Any = FakeLink({})
    assert resolve(link, [A, B], 1000, LIVE) == {A: 70, B: 50}
    assert resolve(link, [A, B], 2000, LIVE) == {A: 100, B: 50}


@pytest.mark.parametrize(
    ("since", "said"),
    [
        ({A: 10}, "no offset for orders-1"),
        ({A: 10, B: 10, ("x", 0): 1}, "names x-0, which the flow does not read"),
        ({A: 10, B: 51}, "51 of orders-1 is behind what the flow has landed"),
    ],
)
def test_offsets_must_fit(since: Any, said: str) -> None:
    link: Any = FakeLink({})
    with pytest.raises(ReprocessError, match=said):
        resolve(link, [A, B], since, LIVE)


def test_records_that_are_gone_are_named() -> None:
    link: Any = FakeLink({A: 30, B: 0})
    with pytest.raises(ReprocessError) as caught:
        check_log(link, {A: 0, B: 0}, {}, LIVE)
    assert "orders-0: offsets 0 to 29" in str(caught.value)
    assert """--since '{"orders": {"0": 30, "1": 0}}'""" in str(caught.value)
    # They were gone when the flow began, or it is not rebuilt from there.
    check_log(link, {A: 0, B: 0}, {A: 30, B: 0}, LIVE)
    check_log(link, {A: 30, B: 0}, {}, LIVE)
    with pytest.raises(ReprocessError, match="orders-0: offsets 12 to 29"):
        check_log(link, {A: 0, B: 0}, {A: 12}, LIVE)


def test_a_topic_that_was_created_again_cannot_be_rebuilt() -> None:
    link: Any = FakeLink({A: 0, B: 0}, {"orders": "another"})
    with pytest.raises(ReprocessError, match="orders was deleted and created again"):
        check_log(link, {A: 0, B: 0}, {}, LIVE)


def write_batch(checkpoint: Path, batch: int, *sources: dict[str, Any]) -> None:
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    lines = ["v1", "{}", *(json.dumps(source) for source in sources)]
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))
    (checkpoint / "commits" / str(batch)).write_text("v1\n{}")


def test_how_far_a_query_has_come_over_all_its_sources(tmp_path: Path) -> None:
    assert reach_of(tmp_path / "none") == Reach()
    write_batch(tmp_path, 3, {"orders": {"0": 10, "1": 5}}, {"orders": {"0": 8}, "refunds": {"0": 2}})
    found = reach_of(tmp_path)
    assert (found.batch, found.least[A], found.most[A], found.most["refunds", 0]) == (3, 8, 10, 2)
    assert found.lacks(Reach(batch=1, most={A: 8, B: 6, ("gone", 0): 9})) == [B]


def test_the_shadow_writes_nowhere_where_others_look() -> None:
    pipeline = load_text(FILE, Path("/somewhere"), "shop.yaml", {})
    shadow = shadow_of(pipeline, "minutes", {})
    assert list(shadow.flows) == ["orders", "large", "minutes"]
    live = {table.path for flow in pipeline.flows.values() for table in flow.tables}
    tables = {table.path for table in shadow.flows["minutes"].tables}
    assert tables == {"/somewhere/lake/minutes__reprocess", "/somewhere/lake/minutes_late__reprocess"}
    assert not tables & live
    assert shadow.work == pipeline.work / "reprocess" / "minutes" / "work"
    orders = shadow_of(pipeline, "orders", {"orders": {A: 3}}).flows["orders"]
    assert isinstance(orders, Ingest)
    assert (orders.commit_group, orders.starting) == (None, "latest")


def test_a_table_that_is_looked_up_is_the_live_one() -> None:
    shadow = shadow_of(load_text(FILE, Path("/somewhere"), "shop.yaml", {}), "named", {})
    assert list(shadow.flows) == ["orders", "large", "named"]
    assert shadow.flows["large"].table.path == "/somewhere/lake/large"
    assert shadow.flows["named"].table.path == "/somewhere/lake/named__reprocess"


def test_another_definition_or_another_beginning_is_another_plan() -> None:
    pipeline = load_text(FILE, Path("/somewhere"), "shop.yaml", {})
    plan = plan_of(pipeline, "minutes", {})
    assert plan == plan_of(load_text(FILE, Path("/somewhere"), "shop.yaml", {}), "minutes", {})
    assert plan != plan_of(pipeline, "minutes", {"orders": {A: 3}})
    changed = FILE.replace("SELECT * FROM orders}", "SELECT * FROM orders WHERE true}")
    assert plan != plan_of(load_text(changed, Path("/somewhere"), "shop.yaml", {}), "minutes", {})
    assert plan != plan_of(pipeline, "large", {})


@pytest.mark.parametrize(
    ("flow", "since", "said"),
    [
        ("larg", None, "there is no flow 'larg'; did you mean 'large'?"),
        ("loud", None, "writes to the topic 'loud', and what is written there cannot be taken back"),
        ("minutes", 5, r"'minutes' \(aggregate\) can only be rebuilt as a whole"),
        ("both", 5, r"'both' \(sql\) can only be rebuilt as a whole"),
    ],
)
def test_flows_that_cannot_be_rebuilt(flow: str, since: int | None, said: str) -> None:
    pipeline = load_text(FILE, Path("/somewhere"), "shop.yaml", {})
    with pytest.raises(ReprocessError, match=said):
        check_flow(pipeline, flow, since)
