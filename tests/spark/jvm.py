"""How tests start JVMs: tuned for a short life, and from an archive of the classes that Spark loads.

Half of what a session takes to start is Java reading and checking ten thousand classes. Java can write them down once
as it needs them in memory (class data sharing); the archive lies with the installed PySpark, whose jars it must match.
It also wants the same class path in each start, so tests have a Spark home whose name does not change.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs with many small queries in a few minutes: what Java's second compiler would gain they never earn back."""
_PLACE: Final = Path(sys.prefix) / "tidelog-spark"
_HOME: Final = _PLACE / "home"
_ARCHIVE: Final = _PLACE / "classes.jsa"


def environment() -> dict[str, str]:
    """Variables for this process and those that it starts; the first call in an installation makes the archive."""
    if "SPARK_HOME" in os.environ or " " in str(_PLACE) or find_spec("pyspark") is None:
        return {"SPARK_SUBMIT_OPTS": SHORT_LIVED}
    if not _ARCHIVE.exists() or _ARCHIVE.stat().st_mtime < (_HOME / "jars").stat().st_mtime:
        _make()
    return {"SPARK_HOME": str(_HOME), "SPARK_SUBMIT_OPTS": _options()}


def java_options() -> str:
    """Of executors and daemons, which have the Spark home of this process."""
    return _options() if os.environ.get("SPARK_HOME") == str(_HOME) else SHORT_LIVED


def _options() -> str:
    # Java leaves an archive aside that does not match, after another Java was installed, and says so on its output.
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={_ARCHIVE} -Xlog:disable" if _ARCHIVE.exists() else SHORT_LIVED


def _make() -> None:
    from tidelog.spark.home import link_home

    shutil.rmtree(_PLACE, ignore_errors=True)
    _HOME.mkdir(parents=True)
    link_home(_HOME)
    part = _ARCHIVE.with_suffix(".part")
    options = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={part} -Xlog:disable"
    variables = {**os.environ, "SPARK_HOME": str(_HOME), "SPARK_SUBMIT_OPTS": options}
    # Without an archive tests run as well, only slower: a Java that cannot write one is not their affair.
    command = [sys.executable, "-m", "tests.spark.jvm"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode == 0 and part.exists():
        part.rename(_ARCHIVE)
    else:
        sys.stderr.write(f"no archive of Spark's classes: {done.stderr[-2000:]}\n")


def _load_classes() -> None:
    """A little of all that tests do."""
    from tidelog.spark.lake.tasks import map_in_arrow
    from tidelog.spark.session import local_session

    with tempfile.TemporaryDirectory() as directory:
        session = local_session("classes")
        rows = session.range(100).selectExpr(
            "id % 7 AS k", "id AS n", "current_timestamp() AS at", "'{\"a\": 1}' AS text"
        )
        rows.write.partitionBy("k").parquet(f"{directory}/rows")
        stored = session.read.parquet(f"{directory}/rows")
        sums = stored.groupBy("k").agg({"n": "sum", "at": "max"})
        stored.join(sums, "k").orderBy("n").selectExpr("*", "from_json(text, 'a INT') AS parsed").collect()
        stored.dropDuplicates(["k"]).toArrow()
        stream = session.readStream.schema(stored.schema).parquet(f"{directory}/rows")
        counted = stream.withWatermark("at", "1 minute").groupBy("k").count()
        query = (
            counted.writeStream.outputMode("update")
            .trigger(availableNow=True)
            .option("checkpointLocation", f"{directory}/checkpoint")
            .foreachBatch(lambda frame, batch: map_in_arrow(frame, iter, frame.schema).collect())
            .start()
        )
        query.awaitTermination()
        session.stop()


if __name__ == "__main__":
    _load_classes()
