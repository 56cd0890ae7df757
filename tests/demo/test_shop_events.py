"""The shop of the demo: what a seed makes, and that its odd records are what they are said to be."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.spark.pipeline.kinds.aggregate import Aggregate
from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.load import load_text
from tools.demo.acts.pipeline import TEMPLATE
from tools.demo.events import CLOSING_MS, LATE_MS, TOPICS, Event, Shop
from tools.demo.mending import LETTERS, REBUILT, mend

NOW_MS = 1_790_000_000_000
TIMES = {"activity": "at", "orders": "ordered_at", "payments": "paid_at", "metrics": "at"}


def events(seed: int, number: int = 2000) -> list[Event]:
    shop = Shop(seed)
    return [shop.next(NOW_MS) for _ in range(number)]


def at_ms(event: Event) -> int:
    return round(datetime.fromisoformat(json.loads(event.value)[TIMES[event.topic]]).timestamp() * 1000)


def columns() -> dict[str, list[str]]:
    """The names in the schemas of the pipeline's file, by topic."""
    pytest.importorskip("yaml")
    pipeline = load_text(TEMPLATE.read_text(), TEMPLATE.parent, "shop.yaml", {})
    flows = [flow for flow in pipeline.flows.values() if isinstance(flow, Ingest) and flow.decode is not None]
    return {flow.topics[0]: [part.split()[0] for part in str(flow.decode.schema).split(",")] for flow in flows}


def test_a_seed_makes_the_same_events_and_another_makes_others() -> None:
    assert events(7) == events(7)
    assert events(7) != events(8)


@given(st.integers(0, 2**32))
@settings(max_examples=10)
def test_every_kind_is_what_it_is_called(seed: int) -> None:
    made, schemas = events(seed), columns()
    paid: set[bytes] = set()
    for event in made:
        if event.kind == "broken":
            with pytest.raises((ValueError, AssertionError)):
                value = json.loads(event.value)
                assert not any(isinstance(part, dict) for part in value.values())
            continue
        assert sorted(json.loads(event.value)) == sorted(schemas[event.topic])
        late_ms = NOW_MS - at_ms(event)
        assert LATE_MS[0] <= late_ms <= LATE_MS[1] if event.kind == "late" else late_ms == 0
        if event.topic == "payments":
            assert (event.value in paid) == (event.kind == "twice")
            paid.add(event.value)
    kinds = Counter(event.kind for event in made)
    assert set(kinds) == {"plain", "late", "twice", "broken"}
    assert {event.topic for event in made} == set(TOPICS)


def test_no_two_orders_or_payments_share_an_id_unless_they_were_sent_twice() -> None:
    for topic, name in (("orders", "order_id"), ("payments", "payment_id")):
        whole = [event for event in events(3) if event.topic == topic and event.kind in ("plain", "late")]
        ids = [json.loads(event.value)[name] for event in whole]
        assert len(ids) == len(set(ids))


def test_the_last_events_close_every_window_of_the_pipeline() -> None:
    pipeline = load_text(TEMPLATE.read_text(), TEMPLATE.parent, "shop.yaml", {})
    closing = {event.topic: event for event in Shop(1).closing(NOW_MS)}
    aggregates = [flow for flow in pipeline.flows.values() if isinstance(flow, Aggregate)]
    assert {flow.reads for flow in aggregates} == set(closing)
    for flow, event in itertools.product(aggregates, closing.values()):
        assert at_ms(event) == NOW_MS + CLOSING_MS
        # A window that a record of now may be in ends before the watermark that this one makes.
        assert flow.watermark_ms + flow.window.size_ms < CLOSING_MS
        # And what is called late comes after all windows of its time have been closed.
        assert LATE_MS[0] > flow.watermark_ms + flow.window.size_ms


def test_the_two_mistakes_of_the_pipeline_are_mended(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(TEMPLATE.read_text())
    mend(file)
    before = load_text(TEMPLATE.read_text(), tmp_path, "shop.yaml", {})
    after = load_text(file.read_text(), tmp_path, "shop.yaml", {})
    assert [name for name, flow in after.flows.items() if flow != before.flows[name]] == [LETTERS, REBUILT]
    assert after.flows.keys() == before.flows.keys()
