"""The programs of docs/spark.md run, one after the other, on the address and the directories of the test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.sourcing import Log
from tidelog.testing import Broker

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_programs_of_the_page_run(
    spark: SparkSession, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log(broker.bootstrap_servers)
    log.topic(name="orders")
    log.produce("orders", [{"key": b"k%d" % number, "value": b"an order"} for number in range(3)])
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) >= 3
    names: dict[str, object] = {}
    for block in blocks:
        program = block.replace("127.0.0.1:9092", broker.bootstrap_servers).replace("/tmp/", f"{tmp_path}/")
        program = program.replace("/var/lib/tidelog", broker.data)
        exec(compile(program, str(PAGE), "exec"), names)
    assert "'maxOffsetsBehindLatest': '0'" in capsys.readouterr().out
    assert spark.read.parquet(str(tmp_path / "orders")).count() == 3
