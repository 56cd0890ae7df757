"""The state of a run, in files that `status` reads: while it runs, and after it died.

    WORK/lock               held by the process that runs the pipeline, as long as it lives
    WORK/state/run.json     which process, since when, when it last looked at its flows
    WORK/state/FLOW.json    one flow
Files are put in place by a rename: a reader sees the old or the new one, never half of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from tidelog.kernel.errors import DirectoryLockedError
from tidelog.runtime.dirlock import DirectoryLock, lock_file, lock_for_reading
from tidelog.runtime.durable import replace_file
from tidelog.spark.pipeline.progress import Progress

T = TypeVar("T")


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    pipeline: str
    pid: int
    started_ms: int
    seen_ms: int
    ended_ms: int | None = None
    code: int | None = None


class FlowState(msgspec.Struct, frozen=True, kw_only=True):
    flow: str
    kind: str
    phase: str
    written_ms: int
    progress: Progress | None = None
    rows: int | None = None
    late: int | None = None
    watermark_ms: int | None = None
    aside: dict[str, int] = {}  # rows that went elsewhere, such as duplicates
    dead: Mapping[str, int] | None = None
    retrying: int | None = None
    failures: int = 0
    restarts: int = 0
    last_error: str | None = None
    last_error_ms: int | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a pipeline."""

    alive: bool
    run: RunState | None
    flows: list[FlowState]


class StateFiles:
    def __init__(self, work: Path) -> None:
        self._work = work
        self._home = work / "state"

    def lock(self) -> DirectoryLock:
        self._home.mkdir(parents=True, exist_ok=True)
        return lock_file(str(self._work / "lock"))

    def write_run(self, state: RunState) -> None:
        self._write("run", msgspec.json.encode(state))

    def write_flow(self, state: FlowState) -> None:
        # A flow may be called run.
        self._write(f"flow-{state.flow}", msgspec.json.encode(state))

    def read(self, flows: list[str]) -> Status:
        found = [self._read(f"flow-{flow}", FlowState) for flow in flows]
        return Status(
            alive=self._is_locked(),
            run=self._read("run", RunState),
            flows=[state for state in found if state is not None],
        )

    def _is_locked(self) -> bool:
        try:
            lock_for_reading(str(self._work / "lock")).release()
        except DirectoryLockedError:
            return True
        return False

    def _write(self, name: str, content: bytes) -> None:
        replace_file(str(self._home / f"{name}.json"), content, synced=False)

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode((self._home / f"{name}.json").read_bytes(), type=kind)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
