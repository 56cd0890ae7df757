"""Streams into topics that die in their second epoch, in the same moment, each at another point.

Run as a script it is killed by SIGKILL, the JVM and all workers with it, when every stream has reached its point; the
test then runs the same streams to their ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from tidelog.spark.sink.writers import StreamWriter
from tidelog.spark.source import TidelogSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

FATAL_EPOCH = 1
IN_A_TASK = "in a task"
POINTS = (IN_A_TASK, "before the decision", "decided", "one ended", "all ended")


def topic_of(point: str) -> str:
    return "into-" + point.replace(" ", "-")


def start(spark: SparkSession, bootstrap: str, home: Path, point: str, format: str = "tidelog") -> StreamingQuery:
    """Files of numbers, one for each epoch. After the restart an epoch is split over fewer tasks."""
    sink = {
        "kafka.bootstrap.servers": bootstrap,
        "topic": topic_of(point),
        "checkpointLocation": str(home / "checkpoints" / topic_of(point)),
    }
    if format != "tidelog":
        sink |= {"point": point, "home": str(home)}
    frame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(home / "input"))
    frame = frame.repartition(2 if format == "tidelog" else 3).selectExpr("value key", "value")
    return frame.writeStream.format(format).options(**sink).trigger(availableNow=True).start()


def reach(home: str, point: str) -> None:
    """Here the process stays until it is killed."""
    (Path(home) / topic_of(point)).touch()
    signal.pause()


class DoomedSink(TidelogSource):
    @classmethod
    def name(cls) -> str:
        return "doomed"

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:
        doom = {name: self.options.pop(name) for name in ("point", "home") if name in self.options}
        found = super().streamWriter(schema, overwrite)
        self.options.update(doom)
        return DoomedWriter(found._options, found._names, **doom)


class DoomedWriter(StreamWriter):
    def __init__(self, options: Any, names: Any, *, point: str, home: str) -> None:
        super().__init__(options, names)
        self._point = point
        self._home = home
        self._epoch = -1

    def write(self, iterator: Iterator[Any]) -> Any:
        is_fatal = self._point == IN_A_TASK and TaskContext.get().getLocalProperty("streaming.sql.batchId") == "1"
        return super().write(self._broken_off(iterator) if is_fatal else iterator)

    def _broken_off(self, iterator: Iterator[Any]) -> Iterator[Any]:
        from tidelog.spark.sink import task

        task.GATHER_BYTES = 1  # type: ignore[misc]  # so that the rows before are out
        for batch in iterator:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            yield batch.slice(half, 1)
            reach(self._home, self._point)

    def commit(self, messages: Any, batchId: int) -> None:
        self._epoch = batchId
        super().commit(messages, batchId)

    def step(self, step: str) -> None:
        if self._epoch == FATAL_EPOCH and step == self._point:
            reach(self._home, step)


def main(bootstrap: str, home: Path, wait: Callable[[float], None] = time.sleep) -> None:
    from tests.spark.sink_stream import DoomedSink  # by its name, so that workers find it
    from tidelog.spark.session import local_session

    spark = local_session("doomed", cores=4)
    spark.dataSource.register(DoomedSink)
    queries = [start(spark, bootstrap, home, point, "doomed") for point in POINTS]
    while not all((home / topic_of(point)).exists() for point in POINTS):
        for query in queries:
            if not query.isActive:
                raise RuntimeError(f"a stream ended: {query.exception()}")
        wait(0.1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
