"""Where the pipeline's tasks run: in the driver, in executors of `local-cluster`, or on a standalone cluster.

The standalone cluster is what docs/spark-cluster.md starts by hand: a master and two workers out of the pyspark wheel,
on loopback, with ports of the system's choosing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from tests.spark.faults.processes import below, kill, until
from tests.spark.jvm import java_options

EXECUTOR: Final = "CoarseGrainedExecutorBackend"
KINDS: Final = ("standalone", "local-cluster", "local")
NEEDED_MIB: Final = 4096
_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = "Successfully registered with master"
EXECUTOR_MIB: Final = 512


class Standalone:
    """A master and a worker with one core per host. A context manager."""

    def __init__(self, home: Path, hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1")) -> None:
        self._home = home
        self._hosts = hosts
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[int] = []
        self.master = ""

    def __enter__(self) -> Self:
        self._home.mkdir(parents=True, exist_ok=True)
        try:
            _, log = self._start("master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            until(lambda: _MASTER.search(log.read_text()) is not None, f"Spark's master did not come: {log}")
            found = _MASTER.search(log.read_text())
            assert found is not None
            self.master = found[1]
            size = ("--cores", "1", "--memory", f"{EXECUTOR_MIB}m", "--webui-port", "0")
            logs = []
            for number, host in enumerate(self._hosts):
                where = ("--host", host, "--work-dir", str(self._home / f"work-{number}"))
                pid, log = self._start("worker", *size, *where, self.master, name=f"worker-{number}", host=host)
                self.workers.append(pid)
                logs.append(log)
            for log in logs:
                until(lambda log=log: _REGISTERED in log.read_text(), f"Spark's worker did not come: {log}")  # type: ignore[misc]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for pid in below(process.pid for process in self._processes):
            kill(pid)
        for process in self._processes:
            process.kill()
            process.wait()

    def executors(self) -> list[int]:
        return below(self.workers, EXECUTOR)

    def _start(self, role: str, *arguments: str, name: str = "", host: str = "127.0.0.1") -> tuple[int, Path]:
        from tidelog.spark.home import provide_home
        from tidelog.spark.java import provide_java

        environment = dict(os.environ)
        provide_java(environment)
        spark_class = Path(provide_home(environment)) / "bin" / "spark-class"
        environment |= {
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": java_options(),
            "PYSPARK_PYTHON": sys.executable,
        }
        log = self._home / f"{name or role}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [spark_class, f"org.apache.spark.deploy.{role}.{role.title()}", *arguments],
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        self._processes.append(process)
        return process.pid, log
