"""The workers of a run as processes: started, stopped, continued, killed, replaced. A slot is what a worker is for; one
process after another fills it, under a new name each time, so that every life has its own history."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.json import encode
from msgspec.structs import replace

from tests.chaos.history import Disown, Op, Recorder, now
from tests.chaos.workers.base import Task
from tools import apache

JAVA = Path(__file__).parent / "workers" / "java"
STOP_S = 75.0
START_S = 60.0


@dataclass
class Life:
    task: Task
    process: subprocess.Popen[bytes]
    is_paused: bool = False

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None


@dataclass
class Slot:
    task: Task
    lives: list[Life] = field(default_factory=list)
    is_done: bool = False
    """Nobody needs to fill it any more."""


class Crew:
    def __init__(self, directory: Path, servers: str) -> None:
        self.directory = directory
        self.servers = servers
        self.slots: list[Slot] = []
        self.stopped_badly: list[str] = []
        self._notes = Recorder(directory / "harness.jsonl", "harness")
        self._notes_made = 0

    def add(self, role: str, client: str, **fields: object) -> Slot:
        name = f"{role}-{client}-{len(self.slots)}"
        task = Task(role=role, client=client, process=name, servers=self.servers, history="", seed=0, **fields)  # type: ignore[arg-type]
        slot = Slot(task)
        self.slots.append(slot)
        return slot

    def start(self, slot: Slot, seed: int) -> Life:
        process = f"{slot.task.process}.{len(slot.lives) + 1}"
        path = self.directory / f"{process}.jsonl"
        task = replace(slot.task, process=process, history=str(path), seed=seed)
        errors = (self.directory / f"{process}.err").open("wb")
        command = _java(task) if task.client == "java" else [sys.executable, "-m", "tests.chaos.workers"]
        root = Path(__file__).parents[2]
        with errors:
            child = subprocess.Popen(
                [*command, encode(task).decode()], stdin=subprocess.PIPE, stdout=errors, stderr=errors, cwd=root
            )
        life = Life(task, child)
        slot.lives.append(life)
        return life

    def wait_started(self) -> None:
        """Until every one has written its first line: a JVM takes its time, and faults before that hit nobody."""
        deadline = now() + int(START_S * 1e9)
        for life in self.alive:
            path = Path(life.task.history)
            while life.is_alive and now() < deadline and not (path.exists() and path.stat().st_size):
                time.sleep(0.05)

    @property
    def alive(self) -> list[Life]:
        return [life for slot in self.slots for life in slot.lives if life.is_alive]

    def pause(self, life: Life) -> None:
        """SIGSTOP. What it owned may go to others from here on, and it does not know."""
        life.is_paused = True
        os.kill(life.process.pid, signal.SIGSTOP)
        self.is_out(life)

    def go_on(self, life: Life) -> None:
        life.is_paused = False
        if life.is_alive:
            os.kill(life.process.pid, signal.SIGCONT)

    def kill(self, life: Life) -> None:
        if life.is_alive:
            life.process.kill()
        life.process.wait()
        life.is_paused = False
        self.is_out(life)

    def is_out(self, life: Life) -> None:
        if life.task.group:
            self._notes_made += 1
            op = Op(
                process=life.task.process,
                number=-self._notes_made,
                start=now(),
                end=now(),
                outcome="ok",
                actions=[Disown(life.task.group, ())],
            )
            self._notes.write(op)

    def stop(self) -> None:
        """All end their work, and are told so one after the other: whatever still runs after a while is killed."""
        lives = self.alive
        for life in lives:
            self.go_on(life)
            assert life.process.stdin is not None
            life.process.stdin.close()
        deadline = now() + int(STOP_S * 1e9)
        for life in lives:
            try:
                life.process.wait(max(0.1, (deadline - now()) / 1e9))
            except subprocess.TimeoutExpired:
                self.stopped_badly.append(f"{life.task.process} did not end")
                life.process.kill()
                life.process.wait()
        for slot in self.slots:
            for life in slot.lives:
                if life.process.returncode not in (0, -signal.SIGKILL):
                    text = (self.directory / f"{life.task.process}.err").read_text()[-2000:]
                    self.stopped_badly.append(f"{life.task.process} ended with {life.process.returncode}: {text}")

    def abandon(self) -> None:
        """At the end, also after a failure: nothing stays behind."""
        for slot in self.slots:
            for life in slot.lives:
                if life.is_alive:
                    life.process.kill()
                    life.process.wait()
                assert life.process.stdin is not None
                life.process.stdin.close()
        self._notes.close()

    @property
    def parts(self) -> list[Path]:
        return sorted(self.directory.glob("*.jsonl"))


def _java(task: Task) -> list[str]:
    return apache.java("Worker", sources=JAVA, heap="128m")
