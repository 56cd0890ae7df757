"""A write on a standalone cluster: one attempt fails after some of its rows are out, and two attempts at another
task both write all their rows. Run as a script it is the driver."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from tests.spark.faults.cluster import EXECUTOR_MIB
from tests.spark.jvm import java_options
from tidelog.spark.sink.writers import BatchWriter
from tidelog.spark.source import TidelogSource

TASKS = 6
ROWS = 600
FAILING, DOUBLED = 1, 2


class ClumsySink(TidelogSource):
    @classmethod
    def name(cls) -> str:
        return "clumsy"

    def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
        home = self.options.pop("home")
        found = super().writer(schema, overwrite)
        return ClumsyWriter(found._options, found._names, home)


class ClumsyWriter(BatchWriter):
    def __init__(self, options: Any, names: Any, home: str) -> None:
        super().__init__(options, names)
        self._home = Path(home)

    def write(self, iterator: Iterator[Any]) -> Any:
        context = TaskContext.get()
        task, attempt = context.partitionId(), context.attemptNumber()
        rows = self._failing(iterator) if (task, attempt) == (FAILING, 0) else iterator
        message = super().write(rows)
        (self._home / f"{task}.{attempt}").touch()
        # Each waits for the other: Spark ends the slower one as soon as the faster is done, whichever that is.
        while task == DOUBLED and not all((self._home / f"{DOUBLED}.{number}").exists() for number in (0, 1)):
            time.sleep(0.05)
        return message

    def _failing(self, iterator: Iterator[Any]) -> Iterator[Any]:
        from tidelog.spark.sink import task

        task.GATHER_BYTES = 1  # type: ignore[misc]  # so that what came before is out
        for batch in iterator:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            yield batch.slice(half)
            (self._home / "failed").touch()
            raise RuntimeError("an attempt that fails with its rows out")


def main(bootstrap: str, topic: str, home: Path, master: str) -> None:
    from tests.spark.sink_cluster import ClumsySink  # by its name, so that workers find it
    from tidelog.spark.session import local_session

    spark = local_session(
        "clumsy",
        **{
            "spark.master": master,
            "spark.executor.memory": f"{EXECUTOR_MIB}m",
            "spark.executor.extraJavaOptions": java_options(),
            "spark.executorEnv.PYTHONPATH": os.getcwd(),
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.multiplier": "1.01",
            "spark.speculation.minTaskRuntime": "100ms",
        },
    )
    spark.dataSource.register(ClumsySink)
    frame = spark.range(0, ROWS, 1, TASKS).selectExpr("cast(id as string) value")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "home": str(home)}
    frame.write.format("clumsy").mode("append").options(**options).save()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
