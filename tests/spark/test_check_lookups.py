"""`check` of a query that is joined with a table: its rows are computed anew, what was looked up is not judged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tests.spark.check_rig import Change, World, doubled, produce, tamper, without
from tidelog.spark.pipeline.proof import Proof
from tidelog.spark.pipeline.proving_lookup import REMARK
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)  # seconds alone, minutes beside others

FLOWS = """\
  orders: {kind: ingest, topics: orders, decode: {wire: json, schema: "id INT, customer INT"}}
  customers: {kind: ingest, topics: customers, decode: {wire: json, schema: "id INT, name STRING"}}
  parts: {kind: sql, from: orders, query: "SELECT *, explode(array(1, 1)) AS part FROM orders WHERE payload.id <> 3"}
  named: {kind: join, left: parts, right: {table: customers}, on: {payload.customer: payload.id}}
"""


@pytest.fixture
def world(spark: SparkSession, broker: Broker, tmp_path: Path) -> World:
    """Ten orders of four customers, of whom two are known at first and a third later, under two names."""
    world = World(spark, broker, tmp_path, FLOWS)
    produce(broker, "orders", [{"id": n, "customer": n % 4} for n in range(10)])
    produce(
        broker, "customers", [{"id": n, "name": name} for n, name in ((0, "Ada"), (1, "Bo"), (2, "Cy"), (2, "Cyd"))]
    )
    return world


def test_every_row_of_the_query_is_there_with_a_partner_or_without(world: World) -> None:
    world.land("customers", {"customers": 2})
    world.land("named", {"orders": 4})
    world.land("customers", {"customers": 4})
    world.land("named", {"orders": 10})
    table = world.pipeline.flows["named"].table

    def look(change: Change | None = None) -> Proof:
        undo = tamper(table, change) if change is not None else lambda: None
        found = world.check("named")
        undo()
        assert isinstance(found, Proof)
        return found

    # Two equal parts of each order but 3, and the one of customer 2 that came later, 6, under both names.
    found = look()
    assert found.verdict == "balanced", found.table()
    assert found.counts == {"expected": 18, "rows": 20, "missing": 0, "surplus": 0}
    assert found.remarks == (REMARK,)

    lost = look(without("left_offset", 5))
    assert (lost.verdict, lost.counts["missing"]) == ("off", 1)
    assert '"left_offset":5' in lost.examples[0]
    lonely = look(doubled("left_offset", 7))  # customer 3 is unknown: a row of his can be there as often as it was made
    assert (lonely.verdict, lonely.counts["surplus"]) == ("off", 1)
    paired = look(doubled("left_offset", 5))
    assert (paired.verdict, paired.unknown[:7]) == ("unknown", "1 rows "), paired.table()
    # Of the two names that order 6 has, one is gone: the other may have been all that the table had.
    assert look(without("left_offset", 6)).balanced
