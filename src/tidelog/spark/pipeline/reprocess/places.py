"""Where a reprocess keeps its things, below the pipeline's work directory.

reprocess/FLOW.lock     held by the reprocess as long as it lives
reprocess/FLOW.ask      it wants the flow to stand still
reprocess/FLOW.still    the run says that it does
reprocess/FLOW/plan     what is being rebuilt; as long as it is there, a reprocess may go on with what it finds
reprocess/FLOW/work     the work directory of the shadow: checkpoint, state, history
reprocess/FLOW/swap     the decision to swap; as long as it is there, the swap has to be finished
reprocess/FLOW/old      what the swap has put aside
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SHADOW: Final = "__reprocess"
OLD: Final = "__old"
"""What the paths of the shadow's tables, and of those that are kept, end in."""


@dataclass(frozen=True, slots=True)
class Places:
    work: Path
    flow: str

    @property
    def lock(self) -> Path:
        return self._beside("lock")

    @property
    def ask(self) -> Path:
        return self._beside("ask")

    @property
    def still(self) -> Path:
        return self._beside("still")

    @property
    def home(self) -> Path:
        return self.work / "reprocess" / self.flow

    @property
    def plan(self) -> Path:
        return self.home / "plan"

    @property
    def shadow(self) -> Path:
        return self.home / "work"

    @property
    def journal(self) -> Path:
        return self.home / "swap"

    @property
    def old(self) -> Path:
        return self.home / "old"

    @property
    def checkpoint(self) -> Path:
        return checkpoint_of(self.work, self.flow)

    @property
    def shadow_checkpoint(self) -> Path:
        return checkpoint_of(self.shadow, self.flow)

    def _beside(self, what: str) -> Path:
        # No flow's name has a dot.
        return self.work / "reprocess" / f"{self.flow}.{what}"


def checkpoint_of(work: Path, flow: str) -> Path:
    return work / "checkpoints" / flow


def query_of(checkpoint: Path) -> str | None:
    """The id of the query that a checkpoint is of."""
    try:
        return str(json.loads((checkpoint / "metadata").read_text())["id"])
    except FileNotFoundError:
        return None
