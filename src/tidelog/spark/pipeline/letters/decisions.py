"""What was decided of a batch: which of its records are good, dead, to be retried, or wait.

The rows with their outcomes lie in a folder, and a manifest that names it is put in place by a rename, before anything
of the batch is written anywhere else. A batch that is repeated finds its manifest and does what it says: a condition
that asks a table may be true by then, and must not be asked again. The manifest of batch N is also what batch N+1
begins with: the rows that wait. All belongs to a query id: a new checkpoint has a new one and begins with nothing.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tidelog.runtime.durable import replace_file, sync_dir, sync_file
from tidelog.spark.pipeline.batch_state import StateError

KEPT: Final = 2  # Spark repeats only the last batch, which needs the one before it


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    batch: int
    definition: str
    data: str | None = None
    """The folder with the rows; None when there were none."""
    schema: str = ""
    """Of the folder, as Spark's JSON."""
    outcomes: dict[str, int] = {}
    """The rows of this batch by outcome."""
    dead: dict[str, int] = {}
    """Dead letters by reason, since the first batch."""
    retries: int = 0
    """Records that were sent to the retry topic, since the first batch; each time counts."""
    due_ms: int | None = None
    """When the first of the rows that wait is due."""

    def count(self, outcome: str) -> int:
        return self.outcomes.get(outcome, 0)


@dataclass(frozen=True, slots=True)
class Decisions:
    home: Path
    definition: str

    def of(self, batch: int) -> Decided | None:
        return self._read(batch) if self._manifest(batch).exists() else None

    def before(self, batch: int) -> Decided | None:
        """None where there is none: the caller knows whether there must be one."""
        found = max((number for number in self._batches() if number < batch), default=None)
        return None if found is None else self._read(found)

    def last(self) -> Decided | None:
        found = max(self._batches(), default=None)
        return None if found is None else self._read(found)

    def folder(self, batch: int, attempt: str) -> Path:
        """Where an attempt at a batch writes: never where another one did."""
        self.home.mkdir(parents=True, exist_ok=True)
        return self.home / f"{batch}-{attempt}"

    def keep(self, decided: Decided) -> None:
        """From now on this is what happens with the batch."""
        self.home.mkdir(parents=True, exist_ok=True)
        if decided.data is not None:
            _sync(self.home / decided.data)
        replace_file(str(self._manifest(decided.batch)), msgspec.json.encode(decided))
        self._forget(decided.batch)

    def _read(self, batch: int) -> Decided:
        decided = msgspec.json.decode(self._manifest(batch).read_bytes(), type=Decided)
        if decided.definition != self.definition:
            raise StateError(
                f"the flow's letters are in {decided.definition}, and records may wait there; keep the topics of "
                "'dead_letters', give the changed flow another name, or start it anew without its checkpoint and table"
            )
        return decided

    def _forget(self, batch: int) -> None:
        for number in self._batches():
            if number <= batch - KEPT:
                self._manifest(number).unlink(missing_ok=True)
        for folder in self.home.glob("*-*"):
            if int(folder.name.partition("-")[0]) <= batch - KEPT:
                shutil.rmtree(folder, ignore_errors=True)

    def _manifest(self, batch: int) -> Path:
        return self.home / f"{batch}.json"

    def _batches(self) -> list[int]:
        return [int(path.stem) for path in self.home.glob("*.json") if path.stem.isdigit()]


def _sync(folder: Path) -> None:
    """Spark does not: a manifest that outlived a power cut must not name files that did not."""
    for directory, _, files in os.walk(folder):
        for file in files:
            sync_file(os.path.join(directory, file))
        sync_dir(directory)
    sync_dir(str(folder.parent))
