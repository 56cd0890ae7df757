"""A pipeline on a real node: its driver is killed in the middle, the next run goes on, and the tables are exact."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow.parquet as pq
from confluent_kafka import Producer

from tidelog.cli.main import main
from tidelog.spark.lake import open_table
from tidelog.spark.pipeline import load
from tidelog.spark.pipeline.batch_state import kept_home
from tidelog.spark.pipeline.kinds.aggregate import Aggregate
from tidelog.spark.pipeline.model import Pipeline, Table
from tidelog.spark.pipeline.state import FlowState, StateFiles
from tidelog.testing import Broker

RECORDS = 600
MORE = 100
FOLDED = ("hundred", "number", "ids")
PIPELINE = """\
name: shop
bootstrap.servers: {servers}
lake: lake
defaults:
  trigger: 200ms
  maintenance: {{batches: 2}}
  restart: {{first: 1s, most: 2s, give_up_after: 50}}  # on a busy machine Python workers come late, and Spark gives up
flows:
  orders:
    kind: ingest
    topics: orders
    max_records: 300
    decode: {{wire: json, schema: "id BIGINT, at TIMESTAMP"}}
  minutes:
    kind: aggregate
    from: orders
    time: payload.at
    watermark: 1m
    window: {{tumbling: 1m}}
    measures: {{number: count, ids: sum(payload.id)}}
  payments:
    kind: ingest
    topics: payments
    max_records: 300
    decode: {{wire: json, schema: "id BIGINT, at TIMESTAMP"}}
  once:
    kind: dedupe
    from: orders
    by: {{pair: payload.id div 2}}
    time: payload.at
    watermark: 2m
  paid:
    kind: join
    left: orders
    right: payments
    on: [payload.id]
    time: payload.at
    within: {{before: 1m, after: 1m}}
    watermark: 2m
  hundreds:
    kind: view
    from: orders
    key: {{hundred: payload.id div 100}}
    fold: {{number: count, ids: sum(payload.id)}}
    buckets: 4
    history: true
"""


def produce(broker: Broker, first: int, number: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for n in range(first, first + number):
        # Every seventh is minutes late: some of those windows are closed by then, some are not.
        minute = max(0, n // 30 - (5 if n % 7 == 0 else 0))
        value = json.dumps({"id": n, "at": f"2026-11-16T00:{minute:02d}:{n % 60:02d}Z"})
        producer.produce("orders", value)
        if n % 3:
            producer.produce("payments", value)
    assert producer.flush(60) == 0


@pytest.mark.timeout(900)  # two starts of Spark; one takes minutes where others work as well
def test_a_killed_driver_leaves_exact_tables(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    produce(broker, 0, RECORDS)
    file = tmp_path / "shop.yaml"
    file.write_text(PIPELINE.format(servers=broker.bootstrap_servers))
    pipeline = load(file)

    with running(file, tmp_path / "first.log") as process:
        wait_for(process, pipeline, lambda flow: flow.progress is not None and flow.progress.batch >= 0)
        assert main(["pipeline", "status", str(file)]) == 0
        assert f"shop: it runs (pid {process.pid}" in capsys.readouterr().out
        process.kill()
        process.wait(60)
    assert main(["pipeline", "status", str(file)]) == 0
    assert f"shop: it died (pid {process.pid}" in capsys.readouterr().out

    produce(broker, RECORDS, MORE)
    with running(file, tmp_path / "second.log") as process:
        wait_for(process, pipeline, lambda flow: flow.progress is not None and flow.progress.lag_records == 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    phases = [flow.phase for flow in StateFiles(pipeline.work).read(list(pipeline.flows)).flows]
    assert phases == ["stopped"] * len(pipeline.flows)

    check_tables(pipeline)
    request.getfixturevalue("spark")  # in which `check` computes the aggregate anew
    check_check(file, capsys)


@contextmanager
def running(file: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`tidelog pipeline run` in a process of its own; what it has started ends with it."""
    with log.open("wb") as output:
        command = [sys.executable, "-m", "tidelog", "pipeline", "run", str(file)]
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            yield process
        except BaseException:
            sys.stderr.write(log.read_text()[-4000:])
            raise
        finally:
            # The Java process ends by itself when the driver is gone, a moment later.
            if process.poll() is None:
                process.kill()
            process.wait()
            end_group(process.pid)


def end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def wait_for(process: subprocess.Popen[bytes], pipeline: Pipeline, reached: Callable[[FlowState], bool]) -> None:
    """Until what this process has written of all its flows is so far; what the one before it wrote does not count."""
    while True:
        status = StateFiles(pipeline.work).read(list(pipeline.flows))
        run = status.run
        if (
            run is not None
            and run.pid == process.pid
            and len(status.flows) == len(pipeline.flows)
            and all(flow.written_ms >= run.started_ms and reached(flow) for flow in status.flows)
        ):
            return
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(f"it ended with {process.returncode}")


def read(table: Table, *columns: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for file in open_table(table.path, table.format).files():
        found += [tuple(row.values()) for row in pq.ParquetFile(file).read(columns=list(columns)).to_pylist()]
    return found


def check_tables(pipeline: Pipeline) -> None:
    orders, minutes = pipeline.flows["orders"], pipeline.flows["minutes"]
    assert isinstance(minutes, Aggregate)
    ids = Counter(json.loads(value)["id"] for (value,) in read(orders.table, "value"))
    assert ids == Counter(range(RECORDS + MORE))
    # Every record is in a window of the table, in the late table, or in a window that is still open.
    late = [payload["id"] for (payload,) in read(minutes.late, "payload")]
    assert late
    assert len(set(late)) == len(late)
    closed = read(minutes.table, "number", "ids")
    assert closed
    opened = open_windows(kept_home(pipeline.work, "minutes"))
    assert sum(n for n, _ in closed + opened) + len(late) == RECORDS + MORE
    assert sum(s for _, s in closed + opened) + sum(late) == sum(range(RECORDS + MORE))
    hundreds = {hundred: (number, ids) for hundred, number, ids in read(pipeline.flows["hundreds"].table, *FOLDED)}
    assert hundreds == {n: (100, sum(range(n * 100, n * 100 + 100))) for n in range((RECORDS + MORE) // 100)}
    # Which rows these are is for the audit to say.
    once, paid = pipeline.flows["once"], pipeline.flows["paid"]
    assert all(read(table, "offset") for table in once.tables)
    assert read(paid.table, "left_offset")
    assert all(read(table, "offset") for table in paid.aside.values())


def open_windows(home: Path) -> list[tuple[int, int]]:
    (state,) = home.iterdir()
    manifest = json.loads(max(state.glob("*.json"), key=lambda path: int(path.stem)).read_text())
    (folder,) = manifest["parts"]["windows"]
    rows = pq.read_table(state / folder["name"]).to_pylist()
    return [(row["_number"], row["_ids"]) for row in rows if row["_end_ms"] > manifest["watermark_ms"]]


def check_check(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "check", "--strict", str(file)]) == 0
    said = capsys.readouterr().out
    for flow in ("orders", "payments", "once", "paid (orders)", "paid (payments)", "hundreds"):
        assert flow in said
    assert "shop: balanced (7 audits: 7 balanced)" in said
    # The same claims with another table: what it lacks is named.
    elsewhere = file.with_name("elsewhere.yaml")
    elsewhere.write_text(file.read_text().replace("lake: lake", "lake: elsewhere"))
    assert main(["pipeline", "check", str(elsewhere)]) == 1
    assert "missing" in capsys.readouterr().out.lower()
