"""The example of `tidelog pipeline init`, as a user has it: run to its end, looked at, checked, reported.

One run serves all that needs Spark here: the listener that feeds the metrics, the history, the report.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from confluent_kafka import Producer

from tidelog.cli.main import main
from tidelog.runtime.clock import SystemClock
from tidelog.spark.pipeline import load
from tidelog.spark.pipeline.history import Sample, flow_file, read_history
from tidelog.spark.pipeline.meters import Meters
from tidelog.spark.pipeline.metrics import exposition
from tidelog.spark.pipeline.runner import Runner
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRODUCED = 400
RECORDS = PRODUCED + 1
IDLE = "spark.sql.streaming.noDataProgressEventInterval"


@pytest.fixture
def telling_often(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark tells of an idle query every ten seconds; nobody wants to wait for that."""
    spark.conf.set(IDLE, "100ms")
    yield spark
    spark.conf.unset(IDLE)


def produce(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for n in range(PRODUCED):
        # Minutes of orders, the last ones back at the beginning; one is broken.
        minute = n // 30 if n < PRODUCED - 10 else 0
        order = {"id": n, "country": "de", "amount": n % 200, "ordered_at": f"2026-11-16T10:{minute:02d}:{n % 60:02d}Z"}
        producer.produce("orders", b"{broken" if n == 7 else json.dumps(order))
    assert producer.flush(60) == 0


@pytest.mark.timeout(900)  # three queries start their Python processes; minutes beside others
def test_the_example_runs_to_its_end_and_its_report_has_the_audit_and_the_plots(
    telling_often: SparkSession,
    broker: Broker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "shop.yaml"
    assert main(["pipeline", "init", "shop.yaml", "-b", broker.bootstrap_servers]) == 0
    commands = re.findall(r"^  tidelog (.+)$", capsys.readouterr().out, re.MULTILINE)
    for command in commands[:2]:  # a topic and a first record, as it says
        assert main(shlex.split(command)) == 0
    produce(broker)
    quicker = {"trigger: 5s": "trigger: 200ms", "watermark: 10m": "watermark: 1m"}
    # On a busy machine Python workers come late, and Spark gives up.
    quicker |= {"most: 1m": "most: 2s", "give_up_after: 10": "give_up_after: 50"}
    text = file.read_text()
    for said, instead in quicker.items():
        assert said in text
        text = text.replace(said, instead)
    file.write_text(text)
    pipeline = load(file)

    class UntilIdle(Meters):
        """The run ends when each flow has found nothing more to read; only the listener hears of that."""

        def idle(self, flow: str, now_ms: int) -> None:
            super().idle(flow, now_ms)
            runner.stop_asked = all(meter.idles and meter.batches for meter in self.read().values())

    meters = UntilIdle(pipeline.flows)
    runner = Runner(pipeline, telling_often, SystemClock(), print, meters=meters)
    assert runner.run() == 0

    check_metrics(meters)
    for flow in pipeline.flows:
        samples = [line for line in read_history(flow_file(pipeline.work, flow)) if isinstance(line, Sample)]
        assert sum(sample.rows for sample in samples) == RECORDS
        assert samples[-1].lag_records == 0
        assert all(sample.lag_ms is not None for sample in samples)
    capsys.readouterr()
    assert main(["pipeline", "status", "shop.yaml"]) == 0
    said = capsys.readouterr().out
    assert "it ended" in said
    assert [line.split()[7] for line in said.splitlines()[2:5]] == ["0s", "0s", "0s"]
    assert main(["pipeline", "check", "shop.yaml"]) == 0
    assert f"balanced: {RECORDS} records" in capsys.readouterr().out
    check_report(capsys)


def check_metrics(meters: Meters) -> None:
    # What the lag in time is made of, of every kind of flow.
    assert all(meter.progress is not None and meter.progress.newest_ms for meter in meters.read().values())
    lines = exposition("shop", meters.read(), SystemClock().wall_ms()).splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    for flow, kind in (("orders", "ingest"), ("large_orders", "sql"), ("per_minute", "aggregate")):
        labels = f'{{pipeline="shop",flow="{flow}",kind="{kind}"}}'
        assert int(values[f"tidelog_flow_read_rows_total{labels}"]) == RECORDS
        assert int(values[f"tidelog_flow_batches_total{labels}"]) >= 1
        assert int(values[f"tidelog_flow_idle_total{labels}"]) >= 1
        assert values[f"tidelog_flow_lag_records{labels}"] == "0"
        assert values[f"tidelog_flow_lag_seconds{labels}"] == "0.0"


def check_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "report", "shop.yaml", "--picture", "shop.svg"]) == 0
    assert capsys.readouterr().out == "shop-report.html\n"
    made = Path("shop-report.html").read_text()
    assert '<span class="verdict good">balanced</span>' in made
    assert f'<td class="num">{RECORDS}</td><td class="num">{RECORDS}</td><td class="num">0</td>' in made  # the audit
    for flow, charts in (("orders", 4), ("large_orders", 4), ("per_minute", 6)):
        part = made[made.index(f"<h2>{flow} ") :]
        part = part[: part.index("<h2>", 4)]
        assert part.count('class="chart"') == charts
        for drawing in re.findall(r"<svg.*?</svg>", part, re.DOTALL):
            ElementTree.fromstring(drawing)
    assert "balanced" in "".join(ElementTree.parse("shop.svg").getroot().itertext())
    assert main(["pipeline", "report", "shop.yaml", "--no-check", "--out", "again.html"]) == 0
    assert "not checked" in Path("again.html").read_text()
