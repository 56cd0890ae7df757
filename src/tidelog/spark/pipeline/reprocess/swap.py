"""The swap: the shadow's tables, state and checkpoint take the place of the live ones, while the flow stands still.

The journal is the decision. It is written, and synced, when all that it names is ready; from then on the swap is only
finished, never undone, by whoever comes next: the reprocess itself, a run, or a check. Each step may be done again.

    dies before the journal     nothing has changed; the shadow is gone on with, or made anew
    after the journal           the tables are replaced: each by one commit that knows the shadow's query and batch, so
                                the second time it is skipped
    after a table's commit      readers have the new rows; the old checkpoint is still there, and nobody writes with it,
                                as whoever would start the flow finishes the swap first
    in the middle of the state  what lies at its new place already is left alone; it belongs to the new query's id
    without a checkpoint        the old one is put aside, the new one not in place: it is found at its old place
    with both put in place      only the leftovers are removed
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from tidelog.kernel.errors import DirectoryLockedError
from tidelog.runtime.dirlock import lock_file
from tidelog.runtime.durable import replace_file, sync_dir
from tidelog.spark.pipeline.model import Format, Table
from tidelog.spark.pipeline.reprocess.places import OLD, SHADOW, Places, query_of
from tidelog.spark.pipeline.sinks import table_of
from tidelog.spark.pipeline.state import StateFiles

Step = Callable[[str], None]
_NOT_MOVED: Final = ("checkpoints", "state", "history", "starts")
"""Of the shadow's work directory. Where the flow began is where it began, whatever was rebuilt of it since."""


class SwappedTable(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    format: Format
    partition_by: tuple[str, ...]

    def table(self, suffix: str = "") -> Table:
        return Table(path=self.path + suffix, format=self.format, partition_by=self.partition_by)


class Swap(msgspec.Struct, frozen=True, kw_only=True):
    flow: str
    query: str  # of the shadow's checkpoint, and its last batch: the tables know the swap by them
    batch: int
    tables: tuple[SwappedTable, ...]
    keep_old: bool = False


def nothing(step: str) -> None:
    """What a test puts its hooks in the place of."""


def decide(places: Places, swap: Swap, step: Step = nothing) -> None:
    """Of a flow that stands still, and whose shadow is ready."""
    if swap.keep_old:
        # What it was is kept under the name of what takes its place: a later swap keeps what it finds then.
        for one in swap.tables:
            _replace(one.table(OLD), one.table(), swap)
    step("before the journal")
    replace_file(str(places.journal), msgspec.json.encode(swap))
    step("journal")


def finish(places: Places, step: Step = nothing) -> bool:
    """Whether there was a swap to finish. Only for who keeps the flow from being started meanwhile."""
    try:
        swap = msgspec.json.decode(places.journal.read_bytes(), type=Swap)
    except FileNotFoundError:
        return False
    for number, one in enumerate(swap.tables):
        _replace(one.table(), one.table(SHADOW), swap)
        step(f"table {number}")
    _move_state(places, swap)
    step("state")
    _move_checkpoint(places, step)
    places.plan.unlink(missing_ok=True)
    sync_dir(str(places.home))
    places.journal.unlink()
    sync_dir(str(places.home))
    step("done")
    discard(places, [one.table() for one in swap.tables], keep_old=swap.keep_old)
    return True


def discard(places: Places, tables: list[Table], *, keep_old: bool = False) -> None:
    """All that a reprocess has left, the plan first: without it nobody takes the rest for something to go on with."""
    places.plan.unlink(missing_ok=True)
    for table in tables:
        table_of(Table(path=table.path + SHADOW, format=table.format, partition_by=table.partition_by)).drop()
    if not keep_old:
        shutil.rmtree(places.home, ignore_errors=True)
        return
    shutil.rmtree(places.shadow, ignore_errors=True)


def finish_all(work: Path, tell: Callable[[str], None]) -> None:
    """What reprocesses have left that died in the middle of a swap. Only under the pipeline's lock."""
    for journal in sorted((work / "reprocess").glob("*/swap")):
        places = Places(work, journal.parent.name)
        try:
            lock = lock_file(str(places.lock))
        except DirectoryLockedError:
            continue  # it lives, and finishes it by itself
        try:
            if finish(places):
                tell(f"{places.flow}: a reprocess had died in the middle of its swap; it is finished")
        finally:
            lock.release()


def finish_left(work: Path, tell: Callable[[str], None]) -> None:
    """The same without the lock, if nobody has it: a run that is alive sees to it by itself."""
    if not any((work / "reprocess").glob("*/swap")):
        return
    try:
        lock = StateFiles(work).lock()
    except DirectoryLockedError:
        return
    try:
        finish_all(work, tell)
    finally:
        lock.release()


def _replace(old: Table, new: Table, swap: Swap) -> None:
    """A table that had no rows, and gets none, was never made: there may be no late rows."""
    there, other = table_of(old), table_of(new)
    if there.exists() or other.exists():
        there.replace_with(other, query=swap.query, batch=swap.batch)


def _move_state(places: Places, swap: Swap) -> None:
    """State lies in KIND/FLOW/..., by the query's id: what the shadow has goes beside what the old query has."""
    old = query_of(places.checkpoint)
    for folder in sorted(places.shadow.glob(f"*/{swap.flow}")):
        kind = folder.parent.name
        if kind in _NOT_MOVED:
            continue
        target = places.work / kind / swap.flow
        for one in sorted(folder.iterdir()):
            _move(one, target / one.name)
        if old is not None and old != swap.query and (target / old).exists():
            _move(target / old, places.old / kind / old)


def _move_checkpoint(places: Places, step: Step) -> None:
    if not places.shadow_checkpoint.exists():
        return
    old = query_of(places.checkpoint)
    if places.checkpoint.exists():
        _move(places.checkpoint, places.old / "checkpoints" / (old or "unknown"))
    step("no checkpoint")
    _move(places.shadow_checkpoint, places.checkpoint)
    step("checkpoint")


def _move(source: Path, target: Path) -> None:
    """By one rename; what is there of an earlier swap goes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        shutil.rmtree(target)
    source.rename(target)
    sync_dir(str(target.parent))
    sync_dir(str(source.parent))
