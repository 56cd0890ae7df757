"""A stream into tables of every format that dies in its second batch, in the same moment at another point in each.

Run as a script it is killed by SIGKILL, the JVM and the workers with it; the test then runs the same stream to its end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.spark.lake import FORMATS, LakeTable, open_table, query_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

COLUMNS = "topic string, partition int, offset bigint, timestamp timestamp, value binary, event_date date"
FATAL_BATCH = 1
POINTS = [(format, point) for format in FORMATS for point in ("written", "committed")]
# Parquet's commit is durable, its files have not got their names; and a sink that does not know what it has written.
POINTS += [("parquet", "unpublished"), ("delta", "forgetful")]


def table_of(home: Path, format: str, point: str) -> LakeTable:
    return open_table(str(home / "lake" / f"{format}-{point}"), format)


def start(spark: SparkSession, home: Path, die: Callable[[], None] | None = None) -> StreamingQuery:
    def append(frame: DataFrame, batch: int, query: str, format: str, point: str) -> None:
        table = table_of(home, format, point)
        if die is not None and batch == FATAL_BATCH:
            _arm(table, point, die)
        table.append(frame, query=f"{os.getpid()}-{batch}" if point == "forgetful" else query, batch=batch)

    def append_to_all(frame: DataFrame, batch: int) -> None:
        fatal = die is not None and batch == FATAL_BATCH
        run = _beside_each_other if fatal else _one_by_one
        query = query_id(frame)
        run([lambda to=to: append(frame, batch, query, *to) for to in POINTS])

    return (
        spark.readStream.schema(COLUMNS)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(home / "input"))
        .writeStream.foreachBatch(append_to_all)
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def _one_by_one(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()


def _beside_each_other(calls: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _arm(table: LakeTable, point: str, die: Callable[[], None]) -> None:
    store: Any = table._store
    commit = store.commit

    def commit_and_die(*arguments: Any) -> bool:
        if point == "written":
            die()
        if point == "unpublished":
            publish = store._publish
            store._publish = lambda entry: die() if entry.batch == FATAL_BATCH else publish(entry)
        done: bool = commit(*arguments)
        die()
        return done

    store.commit = commit_and_die


def main(home: Path) -> None:
    from tidelog.spark.session import local_session

    all_are_there = threading.Barrier(len(POINTS))

    def die() -> None:
        all_are_there.wait(200)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    start(local_session("doomed"), home, die).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
