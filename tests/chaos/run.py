"""One run: a node, its clients, faults for a while, then everything is healed, read to the end and judged."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.brokers import Lab
from tests.chaos.checker import Report, check
from tests.chaos.cleaning import wait_cleaned
from tests.chaos.crew import Crew
from tests.chaos.faults import Faults
from tests.chaos.history import History, Recorder, merge, save
from tests.chaos.reading import read_all
from tests.chaos.workloads import (
    CLEANER,
    COMPACTED,
    WORKLOADS,
    Workload,
    note_positions,
    note_totals,
    wait_caught_up,
    wait_stable,
)
from tools import apache


@dataclass
class Outcome:
    report: Report
    history: History
    troubles: list[str]
    """What went wrong beside the history: a client that did not end, a group that did not get to the end."""
    faults: dict[str, int]
    kept: Path | None

    @property
    def ok(self) -> bool:
        return self.report.ok and not self.troubles

    def lines(self) -> list[str]:
        found = ["faults: " + ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))]
        found += self.report.lines()
        found += [f"TROUBLE: {trouble}" for trouble in self.troubles]
        if self.kept is not None:
            found.append(f"kept: {self.kept}  (again: ./dev chaos check {self.kept}/history.jsonl)")
        return found


class Progress:
    def __init__(self, prefix: str, quiet: bool) -> None:
        self._prefix = prefix
        self._quiet = quiet
        self._started_s = time.monotonic()

    def __call__(self, text: str) -> None:
        if not self._quiet:
            print(f"{self._prefix} {time.monotonic() - self._started_s:6.1f} s  {text}", file=sys.stderr, flush=True)


def run(
    name: str,
    *,
    seconds: float,
    seed: int,
    broker: str = "tidelog",
    java: bool | None = None,
    keep: Path | None = None,
    quiet: bool = False,
    faults: tuple[str, ...] | None = None,
) -> Outcome:
    """`keep`: where the history stays after a failure."""
    workload = WORKLOADS[name]
    say = Progress(f"{name} seed {seed}", quiet)
    with_java = apache.why_not() is None if java is None else java
    directory = Path(tempfile.mkdtemp(prefix="tidelog-chaos-"))
    try:
        with Lab(broker, directory, seed=seed, properties=CLEANER if workload.is_compacted else None) as lab:
            outcome = _run(workload, lab, directory, seconds, seed, with_java, say, faults or workload.faults)
            if not outcome.ok:
                outcome.kept = _keep(outcome, directory, lab, keep, f"{name}-{broker}-{seed}")
        if outcome.kept is not None:
            shutil.copytree(directory, outcome.kept / "files", dirs_exist_ok=True)  # the node's data among them
        return outcome
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(
    workload: Workload,
    lab: Lab,
    directory: Path,
    seconds: float,
    seed: int,
    java: bool,
    say: Progress,
    names: tuple[str, ...],
) -> Outcome:
    for topic, partitions in workload.topics.items():
        lab.create_topic(topic, partitions, COMPACTED if workload.is_compacted else None)
    crew = Crew(directory, lab.address)
    workload.staff(crew, java)
    troubles = []
    try:
        for number, slot in enumerate(crew.slots):
            crew.start(slot, seed * 1000 + number)
        crew.wait_started()
        faults = Faults(lab, crew, seed, names, say)
        faults.run(seconds)
        say("healed")
        _stop_senders(crew)
        if trouble := wait_caught_up(lab, workload, say, faults.fill):
            troubles.append(trouble)
        crew.stop()
    finally:
        crew.abandon()
    if trouble := wait_stable(lab, workload, say):
        troubles.append(trouble)
    judge = Recorder(directory / "judge.jsonl", "judge")
    if workload.is_compacted and (trouble := wait_cleaned(lab.direct, workload.keys, judge, say)):
        troubles.append(trouble)
    say("the last reads")
    note_totals(lab, workload, judge)
    note_positions(lab, workload, judge)
    if trouble := _read_all(lab, workload, judge):
        troubles.append(trouble)
    judge.close()
    history = merge(workload.meta(seed, lab.node.name), crew.parts)
    report = check(history)
    report.figures["acknowledged"] = sum(op.outcome == "ok" for op in history.ops)
    report.figures["unknown"] = sum(op.outcome == "unknown" for op in history.ops)
    return Outcome(report, history, troubles + crew.stopped_badly, dict(faults.counts), None)


def _stop_senders(crew: Crew) -> None:
    """What is to be copied or consumed must come to an end first."""
    senders = [slot for slot in crew.slots if slot.task.role == "sender"]
    for slot in senders:
        slot.is_done = True
        for life in slot.lives:
            if life.is_alive:
                assert life.process.stdin is not None
                life.process.stdin.close()
    for slot in senders:
        for life in slot.lives:
            life.process.wait(120)


def _read_all(lab: Lab, workload: Workload, judge: Recorder) -> str | None:
    try:
        read_all(lab.direct, workload.keys, judge)
    except AssertionError as error:
        return str(error)
    return None


def _keep(outcome: Outcome, directory: Path, lab: Lab, keep: Path | None, name: str) -> Path:
    home = (keep or Path(".cache") / "chaos") / f"{name}-{time.strftime('%H%M%S')}"
    home.mkdir(parents=True, exist_ok=True)
    save(outcome.history, home / "history.jsonl")
    (home / "node.log").write_text(lab.node.log)
    for path in directory.glob("*.err"):
        if path.stat().st_size:
            shutil.copy(path, home)
    return home
