"""What the acts share: the folder with everything in it, the processes, the story, and the facts.

FOLDER/shop.yaml     the pipeline
FOLDER/node/         the node's data directory
FOLDER/lake/         the tables
FOLDER/work/         checkpoints and state of the pipeline
FOLDER/logs/         what the processes said
FOLDER/facts.json    what the producers know was acknowledged
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tools.demo.processes import TIDELOG, DemoError, Running
from tools.demo.story import Story

if TYPE_CHECKING:
    from tidelog.spark.pipeline.model import Pipeline
    from tools.demo.generator import Generator

PATIENCE_S: Final = 600.0
"""For anything that is waited for: far more than it takes, so that only what is stuck ends the story."""
_LOOK_S: Final = 0.2
_READY: Final = re.compile(r"tidelog is ready on (\S+), data in .*, after (\d+) ms")


@dataclass(frozen=True, slots=True)
class Options:
    seconds: float = 60.0
    rate: float = 300.0
    seed: int = 1


class Facts(msgspec.Struct, kw_only=True):
    """What is certain, whatever node and pipeline say; kept in the folder for a later look."""

    servers: str
    acked: dict[str, dict[str, int]] = {}
    refused: int = 0
    closed_ms: int = 0
    """When the last producer said that no more will come."""


@dataclass(slots=True)
class Stage:
    folder: Path
    options: Options
    story: Story
    facts: Facts = field(default_factory=lambda: Facts(servers="127.0.0.1:0"))
    node: Running | None = None
    pipeline: Running | None = None
    generator: Generator | None = None
    wrong: list[str] = field(default_factory=list)
    """What does not hold. The story goes on, and the exit code tells."""

    @property
    def file(self) -> Path:
        return self.folder / "shop.yaml"

    def load(self) -> Pipeline:
        from tidelog.spark.pipeline import load

        return load(self.file)

    # Processes

    def start_node(self) -> int:
        """A new one takes a port of the system's choosing, a later one takes the same; milliseconds until ready."""
        log = self.folder / "logs" / "node.log"
        seen = len(log.read_text()) if log.exists() else 0
        arguments = ["serve", "--data", str(self.folder / "node"), "--listen", self.facts.servers]
        arguments += ["--override", "tidelog.http.listener="]
        self.node = Running("the node", arguments, log, {})
        self.wait(lambda: _READY.search(log.read_text()[seen:]) is not None, "the node starts")
        ready = _READY.search(log.read_text()[seen:])
        assert ready is not None
        self.facts.servers = ready[1].rpartition("//")[2]
        return int(ready[2])

    def start_pipeline(self) -> Running:
        scratch = self.folder / "tmp"
        scratch.mkdir(exist_ok=True)
        # What a driver that is killed leaves behind lies in the folder, and goes with it.
        environment = {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)}
        log = self.folder / "logs" / "pipeline.log"
        self.pipeline = Running("the pipeline", ["pipeline", "run", str(self.file)], log, environment)
        return self.pipeline

    def run(self, *arguments: str, show: bool = True, codes: tuple[int, ...] = (0,)) -> tuple[int, str]:
        """A command of tidelog in the folder, shown as a user would type it: (exit code, output, and errors of one
        that failed)."""
        if show:
            self.story.block(f"$ tidelog {' '.join(arguments)}")
        done = subprocess.run([*TIDELOG, *arguments], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode not in codes:
            told = f"{done.stdout}{done.stderr}".strip()
            raise DemoError(f"tidelog {' '.join(arguments)} ended with exit code {done.returncode}\n{told}")
        return done.returncode, done.stdout + (done.stderr if done.returncode else "")

    # Waiting

    def wait(self, reached: Callable[[], bool], what: str, tell: Callable[[], str] | None = None) -> None:
        """Until it is so; an error when a process that should run has ended, or nothing comes of it."""
        deadline_s = time.monotonic() + PATIENCE_S
        with self.story.progress() as show:
            while not reached():
                for running in (self.node, self.pipeline):
                    if running is not None:
                        running.expect_alive()
                if time.monotonic() > deadline_s:
                    raise DemoError(f"waited {PATIENCE_S:.0f} s in vain: {what}; see {self.folder / 'logs'}")
                show(what if tell is None else f"{what}: {tell()}")
                time.sleep(_LOOK_S)

    def fail(self, text: str) -> None:
        self.wrong.append(text)
        self.story.bad(text)

    def expect(self, holds: bool, text: str, otherwise: str) -> None:
        if holds:
            self.story.good(text)
        else:
            self.fail(otherwise)

    # Facts, and the end

    def keep_facts(self) -> None:
        (self.folder / "facts.json").write_bytes(msgspec.json.format(msgspec.json.encode(self.facts)))

    def read_facts(self) -> None:
        path = self.folder / "facts.json"
        try:
            self.facts = msgspec.json.decode(path.read_bytes(), type=Facts)
        except (FileNotFoundError, msgspec.DecodeError):
            raise DemoError(f"no finished demo is in {self.folder}: run ./dev demo first") from None

    def end(self) -> None:
        """Every process, and whatever they left in the scratch folder."""
        for running in (self.pipeline, self.node):
            if running is not None:
                running.kill()
        if self.generator is not None:
            self.generator.abandon()
        _remove(self.folder / "tmp")


def _remove(path: Path) -> None:
    import shutil

    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
