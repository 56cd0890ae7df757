"""`check` of a join whose sides read one topic: a record ends up twice, once for each of them, and each side balances
by itself. Where rows belong is computed here once more, record by record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product as pairs_in
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tests.spark.check_rig import World, produce, tamper
from tests.spark.stateful import read
from tidelog.runtime.clock import SystemClock
from tidelog.spark.audit import Report
from tidelog.spark.pipeline.checking import check
from tidelog.spark.pipeline.kinds.join import Join
from tidelog.spark.pipeline.runner import Runner
from tidelog.spark.pipeline.sinks import table_of
from tidelog.testing import Broker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)  # seconds alone, minutes beside others

WITHIN, WATERMARK = 5, 3
"""Minutes."""
FLOWS = """\
  orders: {{kind: ingest, topics: {topic}, decode: {{wire: json, schema: "{schema}"}}}}
  again: {{kind: ingest, topics: {topic}, decode: {{wire: json, schema: "{schema}"}}{more}}}
  paid:
    kind: join
    left: orders
    right: again
    on: {{payload.id: payload.pays}}
    time: payload.at
    within: {{before: 5m, after: 5m}}
    watermark: 3m
    type: full
"""
SCHEMA = "id INT, pays INT, at TIMESTAMP"
Record = tuple[str, int]
"""(side, offset)"""


class Event(NamedTuple):
    minute: int
    id: int
    pays: int | None

    @property
    def value(self) -> dict[str, Any]:
        return {"id": self.id, "pays": self.pays, "at": f"2026-11-16T00:{self.minute:02d}:00Z"}

    def key(self, side: str) -> int | None:
        return self.id if side == "left" else self.pays


# Every second event pays the one before it, or one of long ago; some come late, for the side that is so far.
EVENTS = [Event(n, n, None if n % 2 == 0 else n - 1 if n % 4 == 1 else max(0, n - 9)) for n in range(20)]
EVENTS[15:15] = [Event(1, 50, 14), Event(2, 51, None)]


class Settled(NamedTuple):
    """Where each side's records belong, by the rules of docs/pipeline.md and no code of the join's."""

    pairs: set[tuple[int, int]]
    unmatched: set[Record]
    late: set[Record]
    waiting: set[Record]

    def counts(self, side: str) -> list[int]:
        joined = {pair[side == "right"] for pair in self.pairs}
        others = (self.unmatched, self.late, self.waiting)
        return [len(joined), *(sum(one == side for one, _ in records) for records in others)]


def settled(batches: Iterable[Mapping[str, range]]) -> Settled:
    late: set[Record] = set()
    in_time: list[Record] = []
    latest: dict[str, int] = {}
    for batch in batches:
        marks = {side: minute - WATERMARK for side, minute in latest.items()}
        for side, offsets in batch.items():
            for offset in offsets:
                minute = EVENTS[offset].minute
                if minute < marks.get(side, 0):
                    late.add((side, offset))
                else:
                    in_time.append((side, offset))
                latest[side] = max(latest.get(side, 0), minute)

    def meet(left: Event, right: Event) -> bool:
        return left.id == right.pays and abs(left.minute - right.minute) <= WITHIN

    ours, theirs = ([offset for one, offset in in_time if one == side] for side in ("left", "right"))
    pairs = {(one, other) for one, other in pairs_in(ours, theirs) if meet(EVENTS[one], EVENTS[other])}
    joined = {("left", one) for one, _ in pairs} | {("right", other) for _, other in pairs}

    def is_over(side: str, offset: int) -> bool:
        event, other = EVENTS[offset], "right" if side == "left" else "left"
        return event.key(side) is None or event.minute + WITHIN < latest.get(other, 0) - WATERMARK

    alone = [one for one in in_time if one not in joined]
    unmatched = {one for one in alone if is_over(*one)}
    return Settled(pairs, unmatched, late, set(alone) - unmatched)


def check_tables(world: World, wanted: Settled) -> None:
    """What has landed is right, whatever the audit says of it."""
    table, unmatched, late = (table_of(one) for one in world.pipeline.flows["paid"].tables)
    assert sorted(read(table, "left_offset", "right_offset")) == sorted(wanted.pairs)
    assert sorted(read(unmatched, "side", "offset")) == sorted(wanted.unmatched)
    assert sorted(read(late, "side", "offset")) == sorted(wanted.late)


def audits(world: World) -> dict[str, Report]:
    found = dict(check(world.pipeline, ["paid"], lambda text: None, spark=world.spark))
    assert list(found) == ["paid (orders)", "paid (again)"]
    for name, report in found.items():
        assert isinstance(report, Report), f"{name}: {report.table()}"
    return found  # type: ignore[return-value]


def by_outlet(report: Report) -> list[int]:
    (one,) = report.partitions
    return list(one.tally.by_outlet)


def world_of(spark: SparkSession, broker: Broker, home: Path, topic: str, more: str = "") -> World:
    return World(spark, broker, home, FLOWS.format(topic=topic, schema=SCHEMA, more=more))


def test_each_side_of_one_topic_balances_by_itself(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    world = world_of(spark, broker, tmp_path, "both")
    produce(broker, "both", [event.value for event in EVENTS])
    world.land("paid", {"both": 12})
    world.land("paid", {"both": 22})
    wanted = settled([dict.fromkeys(("left", "right"), part) for part in (range(12), range(12, 22))])
    check_tables(world, wanted)
    # A record may be joined as one side's and unmatched, late or waiting as the other's.
    assert all(wanted.counts("left")), wanted
    assert {one for one, _ in wanted.pairs} & {offset for side, offset in wanted.unmatched if side == "right"}
    found = audits(world)
    assert found["paid (orders)"].balanced, found["paid (orders)"].table()
    assert found["paid (again)"].balanced, found["paid (again)"].table()
    assert by_outlet(found["paid (orders)"]) == wanted.counts("left")
    assert by_outlet(found["paid (again)"]) == wanted.counts("right")


def test_a_row_that_one_side_lost_is_missing_there_and_nowhere_else(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    world = world_of(spark, broker, tmp_path, "lost")
    produce(broker, "lost", [event.value for event in EVENTS])
    world.land("paid", {"lost": 22})
    wanted = settled([dict.fromkeys(("left", "right"), range(22))])
    paid = world.pipeline.flows["paid"]
    assert isinstance(paid, Join)
    # It is in the same table as the other side's too: that one must not be taken for it.
    twice = [offset for side, offset in sorted(wanted.unmatched) if side == "left" and ("right", offset) in wanted[1]]

    def lost(rows: pa.Table) -> pa.Table | None:
        places = list(zip(rows.column("side").to_pylist(), rows.column("offset").to_pylist(), strict=True))
        gone = places.index(("right", twice[0])) if ("right", twice[0]) in places else None
        return None if gone is None else rows.take([n for n in range(len(places)) if n != gone])

    tamper(paid.unmatched, lost)
    found = audits(world)
    assert found["paid (orders)"].balanced, found["paid (orders)"].table()
    assert f"lost-0: {twice[0]} missing (1)" in found["paid (again)"].table()


def test_sides_that_have_come_to_different_places_of_one_topic_are_told_apart(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    world = world_of(spark, broker, tmp_path, "apart")
    produce(broker, "apart", [event.value for event in EVENTS])
    world.land("paid", {"orders": 14, "again": 6})
    world.land("paid", {"orders": 22, "again": 17})
    wanted = settled(
        [{"left": range(14), "right": range(6)}, {"left": range(14, 22), "right": range(6, 17)}],
    )
    check_tables(world, wanted)
    found = audits(world)
    assert [report.balanced for report in found.values()] == [True, True], [one.table() for one in found.values()]
    assert [sum(by_outlet(report)) for report in found.values()] == [22, 17]
    assert [by_outlet(report) for report in found.values()] == [wanted.counts("left"), wanted.counts("right")]


def test_a_query_of_two_sides_notes_where_each_of_them_is(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """What the others take for granted: Spark's checkpoint has a line for each side, the left one's first."""
    world = world_of(spark, broker, tmp_path, "run", more=", starting: latest")

    def run() -> None:
        runner = Runner(world.pipeline, spark, SystemClock(), print, once=True)
        assert runner.run() == 0

    produce(broker, "run", [event.value for event in EVENTS[:7]])
    run()
    produce(broker, "run", [event.value for event in EVENTS[7:]])
    run()
    wanted = settled([{"left": range(7)}, {"left": range(7, 22), "right": range(7, 22)}])
    check_tables(world, wanted)
    found = audits(world)
    assert [report.balanced for report in found.values()] == [True, True], [one.table() for one in found.values()]
    assert [by_outlet(report) for report in found.values()] == [wanted.counts("left"), wanted.counts("right")]
    assert [sum(by_outlet(report)) for report in found.values()] == [22, 15]
