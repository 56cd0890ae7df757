"""`tidelog pipeline run` as a process that is killed and started again, and what its files say of it meanwhile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from tests.spark.faults.processes import below, command, kill, kill_group, until
from tidelog.spark.audit.checkpoint import claims_of
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.state import FlowState, StateFiles

PARTS: Final = ("all", "python", "java")
"""Of a driver: its processes in the same moment, or only one, whose fellows notice."""
_TABLE_LOGS: Final = {"delta": "_delta_log", "parquet": "_tidelog", "iceberg": "metadata"}


class Driver:
    def __init__(self, file: Path, pipeline: Pipeline, home: Path) -> None:
        self._file = file
        self._home = home
        self._log: IO[bytes] = (home / "driver.log").open("ab")
        self._lives: list[subprocess.Popen[bytes]] = []
        self.pipeline = pipeline

    # Life

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self._lives[-1]

    def start(self) -> None:
        self._log.write(b"--- started ---\n")
        self._log.flush()
        argv = [sys.executable, "-m", "tidelog", "pipeline", "run", str(self._file)]
        self._lives.append(subprocess.Popen(argv, stdout=self._log, stderr=self._log, start_new_session=True))

    def kill(self, part: str) -> None:
        """Returns when the driver is dead; of what it has started, some may take a moment longer."""
        if part == "all":
            kill_group(self.process.pid)
        elif part == "python":
            self.process.kill()
        else:
            for pid in self.java():
                kill(pid)
        self.process.wait(600)

    def stop(self) -> int:
        """As Ctrl-C would; the exit code."""
        self.process.terminate()
        return self.process.wait(600)

    def close(self) -> None:
        for life in self._lives:
            kill_group(life.pid)
            life.wait()
        self._log.close()

    def java(self) -> list[int]:
        return [pid for pid in below([self.process.pid]) if "org.apache.spark.deploy.SparkSubmit" in command(pid)]

    def planners(self) -> list[int]:
        """The Python processes that ask the log for offsets, one for each query."""
        return below(self.java(), "python_streaming_source_runner")

    def log(self) -> str:
        return (self._home / "driver.log").read_text(errors="replace")

    # What its files say

    def flow_states(self) -> list[FlowState]:
        return StateFiles(self.pipeline.work).read(list(self.pipeline.flows)).flows

    def committed(self, flow: str) -> int:
        return _last(self._checkpoint(flow) / "commits")

    def is_in_batch(self, flow: str) -> bool:
        return _last(self._checkpoint(flow) / "offsets") > self.committed(flow)

    def table_commits(self, flow: str) -> set[str]:
        table = self.pipeline.flows[flow].table
        try:
            return {one.name for one in (Path(table.path) / _TABLE_LOGS[table.format]).iterdir()}
        except FileNotFoundError:
            return set()

    def wait_batches(self, what: str) -> None:
        """Until every flow has committed a batch more."""
        seen = {flow: self.committed(flow) for flow in self.pipeline.flows}
        until(lambda: self._alive() and all(self.committed(flow) > seen[flow] for flow in seen), what)

    def wait_landed(self, topic: str, ends: Mapping[int, int], what: str) -> None:
        """Until every flow claims all that is before these offsets."""

        def landed(flow: str) -> bool:
            if self.committed(flow) < 0:
                return False
            # A join has a source for each side.
            claimed = [claim.ends for claim in claims_of(self._checkpoint(flow))]
            return all(one.get((topic, partition), 0) >= end for one in claimed for partition, end in ends.items())

        until(lambda: self._alive() and all(landed(flow) for flow in self.pipeline.flows), what, every_s=0.2)

    def _alive(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the driver has ended by itself with {self.process.returncode}: {self.log()[-3000:]}")
        for state in self.flow_states():
            if state.phase == "given up":
                raise RuntimeError(f"flow {state.flow} was given up: {state.last_error}")
        return True

    def _checkpoint(self, flow: str) -> Path:
        return self.pipeline.work / "checkpoints" / flow


def _last(directory: Path) -> int:
    try:
        return max((int(one.name) for one in directory.iterdir() if one.name.isdecimal()), default=-1)
    except FileNotFoundError:
        return -1
