"""A pipeline whose flows stand still, each at a moment of its own, until the whole of it is killed from outside.

A death between two writes is a matter of milliseconds that chance would seldom find, and a start of Spark takes many
seconds. So the moments of many flows are waited for in one process, and `kill -9` strikes when the last of them has
come. What stops them is planted (tests/planting.py) in every Python process, as some moments are not the driver's: the
sink's decision is made in a process of Spark's own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.planting import planted
from tests.spark.faults.plants import HOOK
from tests.spark.faults.processes import below, kill, until

_STANDING: Final = """
import json, os, pathlib, time

DOOM = json.loads({doom!r})


def reach(flow, batch, point):
    if DOOM["moments"].get(flow) != [batch, point]:
        return
    (pathlib.Path(DOOM["home"]) / flow).touch()
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.05)
    os._exit(1)  # the driver is dead, and this one must not go on either


def flow_of(query):
    found = pathlib.Path(DOOM["work"]).glob("checkpoints/*/metadata")
    return next((one.parent.name for one in found if json.loads(one.read_text())["id"] in query), None)


@plant("tidelog.spark.pipeline.letters.sink")
def letters(module):
    write = module.LetterSink.write

    def noting(self, frame, query, batch, attempt):
        self.doomed_batch = batch
        return write(self, frame, query, batch, attempt)

    module.LetterSink.write = noting
    module.LetterSink.step = lambda self, point: reach(self._flow.name, self.doomed_batch, point)


@plant("tidelog.spark.sink.writers")
def sink(module):
    module.BatchWriter.step = lambda self, point: reach(
        flow_of(self._options.app_id), self._options.app_version, "sink: " + point
    )


@plant("tidelog.spark.pipeline.kinds.publish")
def publish(module):
    write = module.PublishSink.write

    def standing(self, frame, query, batch, attempt):
        written = write(self, frame, query, batch, attempt)
        reach(self._outlet._flow, batch, "published")
        return written

    module.PublishSink.write = standing


@plant("tidelog.spark.pipeline.batch_state")
def windows(module):
    keep = module.BatchState.keep

    def standing(self, manifest):
        reach(self.home.parent.name, manifest.batch, "before its state is kept")
        keep(self, manifest)

    module.BatchState.keep = standing


@plant("tidelog.spark.pipeline.views.kept")
def views(module):
    note = module.Kept.note

    def standing(self, query, batch, counted):
        reach(self._home.name, batch, "before it is noted")
        return note(self, query, batch, counted)

    module.Kept.note = standing


@plant("tidelog.spark.pipeline.reprocess.reprocessing")
def reprocess(module):
    module.Reprocessing.__init__.__kwdefaults__["step"] = lambda point: reach("reprocess", 0, point)
"""


class Moment(NamedTuple):
    batch: int
    point: str


def killed(home: Path, work: Path, arguments: list[str], moments: Mapping[str, Moment]) -> str:
    """`tidelog ARGUMENTS` until all moments have come, and then `kill -9` of it and of all that it has started; what it
    had said by then."""
    home.mkdir(parents=True)
    doom = json.dumps({"home": str(home), "work": str(work), "moments": moments})
    with planted(home / "plant", HOOK + _STANDING.format(doom=doom)), _running(home, arguments) as process:

        def come() -> bool:
            lacking = [flow for flow in moments if not (home / flow).exists()]
            assert process.poll() is None, f"it ended with {process.returncode} before {lacking}: {_log(home)[-3000:]}"
            return not lacking

        until(come, f"not all moments came: {_log(home)[-3000:]}")
        # Of a batch nothing more is written by anybody from here on; the driver first, whose death others would notice.
        for pid in [process.pid, *below([process.pid])]:
            kill(pid)
        assert process.wait(60) == -signal.SIGKILL
    return _log(home)


@contextmanager
def _running(home: Path, arguments: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with (home / "log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=dict(os.environ),
        )
        try:
            yield process
        finally:
            for pid in [process.pid, *below([process.pid])]:
                kill(pid)
            process.wait()


def _log(home: Path) -> str:
    return (home / "log").read_text(errors="replace")
