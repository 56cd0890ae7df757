"""A view in the file of a pipeline: what it becomes, and what is said of one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("yaml")

from tidelog.spark.pipeline import PipelineError
from tidelog.spark.pipeline.kinds.aggregate import Measure
from tidelog.spark.pipeline.kinds.view import UPKEEP, View
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.model import Maintenance

HEAD = """\
name: shop
bootstrap.servers: h:1
lake: /lake
flows:
  events: {kind: ingest, topics: events}
"""


def parse(view: str) -> View:
    flow = load_text(f"{HEAD}  accounts: {{kind: view, from: events, {view}}}\n", Path("/"), "x", {}).flows["accounts"]
    assert isinstance(flow, View)
    return flow


def test_defaults() -> None:
    flow = parse("")
    assert flow.key == (("key", "key"),)
    assert (flow.table.path, flow.table.partition_by) == ("/lake/accounts", ("bucket",))
    assert (flow.unapplied.path, flow.unapplied.partition_by) == ("/lake/accounts_unapplied", ("event_date",))
    assert (flow.changes, flow.buckets, flow.envelope, flow.fold, flow.columns) == (None, 16, "plain", (), ())
    assert flow.maintenance == UPKEEP, "old files of a view are many"
    assert parse("maintenance: {batches: 7}").maintenance == Maintenance(batches=7)


def test_options() -> None:
    flow = parse("key: [payload.id], history: true, buckets: 4, fold: {balance: 'sum(payload.amount)', n: count}")
    assert flow.key == (("id", "payload.id"),)
    assert flow.changes is not None and flow.changes.path == "/lake/accounts_changes"
    assert flow.fold == (
        Measure(name="balance", function="sum", argument="payload.amount"),
        Measure(name="n", function="count", argument="*"),
    )
    assert [table.path for table in flow.tables] == [
        "/lake/accounts", "/lake/accounts_changes", "/lake/accounts_unapplied"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ("fold: {n: counts}", "flows.accounts.fold.n: 'counts' is no measure; did you mean 'count'"),
        ("fold: {n: count}, columns: [value]", "flows.accounts.columns: a fold has the columns of its measures"),
        ("envelope: debezium, fold: {n: count}", "flows.accounts.fold: Debezium's envelopes say"),
        ("envelope: debezium, deletes: 'true'", "flows.accounts.deletes: Debezium's envelopes say"),
        ("envelope: maxwell", "flows.accounts.envelope: 'maxwell' is not one of its values"),
        ("key: [payload.offset]", "flows.accounts.key: the column 'offset' is one of the table's own"),
        ("key: [payload._id]", "flows.accounts.key: the column '_id' begins with _"),
        ("key: [payload.id], columns: [value.id]", "flows.accounts.key: the column 'id' would be in the table twice"),
        ("key: [lower(payload.id)]", "flows.accounts.key: 'lower(payload.id)' needs a name"),
        ("changes: all", "flows.accounts.changes: there is such a table only with history: true"),
        ("buckets: 9999", "flows.accounts.buckets: at most 4096"),
        ("buckts: 9", "flows.accounts.buckts: there is no such key; did you mean 'buckets'?"),
    ],
)
def test_faults_by_key(view: str, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        parse(view)
    assert message in "\n".join(str(fault) for fault in caught.value.faults)


def test_other_flows_do_not_read_a_view() -> None:
    more = (
        "  accounts: {kind: view, from: events}\n  large: {kind: sql, from: accounts, query: SELECT * FROM accounts}\n"
    )
    with pytest.raises(PipelineError, match="'accounts' is a view, which is a table and no stream"):
        load_text(HEAD + more, Path("/"), "x", {})
