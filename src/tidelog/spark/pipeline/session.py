"""The Spark session of a pipeline: on this machine, or where the file's `spark.master` says.

Java and Python workers print whatever they like: a failed batch is a hundred lines of theirs, beside the one in which
the runner says what happened. So what they print goes to a file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.model import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_MAX: Final = 16 << 20


def session_of(pipeline: Pipeline) -> SparkSession:
    from tidelog.spark.session import local_session

    with printing_to(log_of(pipeline)):
        return local_session(f"tidelog {pipeline.name}", cores=max(2, os.cpu_count() or 2), **pipeline.spark)


def log_of(pipeline: Pipeline) -> Path:
    return pipeline.work / "spark.log"


@contextmanager
def printing_to(path: Path) -> Iterator[None]:
    """Processes that are started meanwhile, and those that they start, print to the file as long as they live."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > LOG_MAX:
        path.replace(path.with_suffix(".log.1"))
    sys.stdout.flush()
    sys.stderr.flush()
    ours = [os.dup(number) for number in (1, 2)]
    try:
        with path.open("ab") as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        yield
    finally:
        for number, copy in zip((1, 2), ours, strict=True):
            os.dup2(copy, number)
            os.close(copy)
