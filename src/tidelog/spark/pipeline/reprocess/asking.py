"""A reprocess asks a run that is alive to let a flow stand still; both tell each other by files.

    the reprocess   holds FLOW.lock, writes a token of its own to FLOW.ask, waits for the same token in FLOW.still
    the run         sees FLOW.ask and that FLOW.lock is held, stops the flow after its current batch, writes the token
                    to FLOW.still, and leaves the flow alone as long as FLOW.ask and the lock are there
    then            the reprocess removes FLOW.ask; or it died and its lock is free: the run finishes the swap if one
                    was decided, and starts the flow again

A run that dies and comes again finds FLOW.ask before it starts the flow. Without a run the reprocess takes the
pipeline's own lock, so that none can start.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tidelog.kernel.errors import DirectoryLockedError
from tidelog.runtime.dirlock import lock_for_reading
from tidelog.runtime.durable import replace_file
from tidelog.spark.pipeline.reprocess.places import Places
from tidelog.spark.pipeline.reprocess.swap import finish
from tidelog.spark.pipeline.state import StateFiles
from tidelog.spark.pipeline.supervisor import END, Event, FlowStatus, PauseAsked, Phase, ResumeAsked


@contextmanager
def standing_still(places: Places, tell: Callable[[str], None], wait: Callable[[], object]) -> Iterator[bool]:
    """No run starts the flow within; for who holds FLOW.lock. `wait` is what is done between two looks. Gives whether
    there is a run, which writes the flow's history."""
    token = secrets.token_hex(8)
    lock = None
    asked = False
    try:
        while True:
            try:
                lock = StateFiles(places.work).lock()
                break
            except DirectoryLockedError:
                if not asked:
                    tell(f"{places.flow}: asking the run to let it stand still")
                    replace_file(str(places.ask), token.encode())
                    asked = True
                if _read(places.still) == token:
                    break
            wait()
        yield lock is None
    finally:
        places.ask.unlink(missing_ok=True)
        places.still.unlink(missing_ok=True)
        if lock is not None:
            lock.release()


class Pauses:
    """The run's side, looked at in each turn."""

    def __init__(self, work: Path, tell: Callable[[str], None]) -> None:
        self._work = work
        self._tell = tell
        self._standing: set[str] = set()

    def events(self, flows: Mapping[str, FlowStatus]) -> list[Event]:
        events: list[Event] = []
        for name, status in flows.items():
            places = Places(self._work, name)
            token = self._asked(places)
            if token is None:
                if name in self._standing or status.phase is Phase.PAUSED:
                    self._standing.discard(name)
                    if finish(places):
                        self._tell(f"{name}: its reprocess died in the middle of the swap; it is finished")
                    events.append(ResumeAsked(name))
            elif status.phase is Phase.PAUSED or status.phase in END:
                self._standing.add(name)
                if _read(places.still) != token:
                    replace_file(str(places.still), token.encode())
            elif status.phase in (Phase.WAITING, Phase.RUNNING):
                events.append(PauseAsked(name))
        return events

    def _asked(self, places: Places) -> str | None:
        """The token of a reprocess that lives."""
        token = _read(places.ask)
        if token is None:
            return None
        try:
            lock_for_reading(str(places.lock)).release()
        except DirectoryLockedError:
            return token
        for file in (places.ask, places.still):
            file.unlink(missing_ok=True)
        return None


def _read(file: Path) -> str | None:
    try:
        return file.read_text()
    except FileNotFoundError:
        return None
