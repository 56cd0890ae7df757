"""What the tests of dead letters share: a pipeline on a real node, a clock that the test moves, and letters."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from confluent_kafka import Producer

from tidelog.protocol.batch import Record
from tidelog.spark.audit import Report
from tidelog.spark.lake import open_table
from tidelog.spark.link import Link
from tidelog.spark.pipeline.checking import check
from tidelog.spark.pipeline.letters.headers import Letter, letter_of
from tidelog.spark.pipeline.letters.reading import records
from tidelog.spark.pipeline.load import load
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.runner import Runner
from tidelog.spark.pipeline.state import FlowState, StateFiles
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 240.0  # on a busy machine a batch takes long


class MovedClock:
    """Wall time goes on by a millisecond with each look, and by what the test says."""

    def __init__(self, now_ms: int = 1_790_000_000_000) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()

    def wall_ms(self) -> int:
        return self.move(1)

    def monotonic_s(self) -> float:
        return time.monotonic()

    def move(self, ms: int) -> int:
        with self._lock:
            self._now_ms += ms
            return self._now_ms


class Rig:
    def __init__(self, broker: Broker, home: Path, text: str) -> None:
        self.servers = broker.bootstrap_servers
        self.file = home / "shop.yaml"
        self.file.write_text(text.format(servers=self.servers))
        self.pipeline: Pipeline = load(self.file)
        self.clock = MovedClock()
        self.told: list[str] = []

    def produce(self, topic: str, values: Sequence[bytes | dict[str, Any] | None], **more: Any) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for value in values:
            data = json.dumps(value) if isinstance(value, dict) else value
            producer.produce(topic, data, **more)
        assert producer.flush(60) == 0

    def runner(self, spark: SparkSession, *, once: bool = False) -> Runner:
        return Runner(self.pipeline, spark, self.clock, self.told.append, once=once)

    @contextmanager
    def running(self, spark: SparkSession) -> Iterator[Runner]:
        """Until the test is through with it; a stop in order."""
        runner = self.runner(spark)
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.append(runner.run()))
        thread.start()
        try:
            yield runner
        finally:
            runner.stop_asked = True
            thread.join(WAIT_S)
        assert codes == [0], self.told

    def until(self, reached: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(int(WAIT_S / 0.05)):
            if reached():
                return
            pause.wait(0.05)
        raise AssertionError(f"it did not come so far: {self.told}")

    def state(self, flow: str = "orders") -> FlowState | None:
        return next(iter(StateFiles(self.pipeline.work).read([flow]).flows), None)

    def letters(self, topic: str) -> list[tuple[Record, Letter]]:
        with Link({"bootstrap.servers": self.servers}) as link:
            found = [(record, letter_of(record)) for _, record in records(link, topic)]
        return [(record, letter) for record, letter in found if letter is not None and letter.text("tidelog.flow")]

    def rows(self, flow: str = "orders") -> list[dict[str, Any]]:
        table = self.pipeline.flows[flow].table
        found: list[dict[str, Any]] = []
        for file in open_table(table.path, table.format).files():
            found += pq.ParquetFile(file).read().to_pylist()
        return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))

    def balance(self, flow: str = "orders") -> dict[str, int]:
        """What the audit counts in each outlet; it must balance."""
        ((_, report),) = check(self.pipeline, [flow], lambda text: None)
        assert report.balanced, report.table()
        assert isinstance(report, Report)
        assert sum(report.reasons.values()) == report.landed()["dead letters"], "each has a reason"
        return report.landed()

    def settles(self, **outlets: int) -> None:
        """The audit comes to this; on the way, as Spark has not committed a batch yet, it balances as well."""
        expected = {name.replace("_", " "): number for name, number in outlets.items()}
        self.until(lambda: self.balance() == expected)
