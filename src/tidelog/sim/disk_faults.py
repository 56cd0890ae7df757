"""What goes wrong on the simulated disk, and when; how much of a change happens then; and how a machine stops."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

# What gives room back, and what fails for good when it fails.
NEED_NO_ROOM: Final = ("truncate", "remove", "sync")


class Outcome(Enum):
    """How much of a change happens."""

    WHOLE = "whole"
    SHORT = "short"
    TORN = "torn"


class SimulatedCrash(BaseException):
    """The machine stopped in the middle of an operation; no error that the code under test may catch. Nothing touches
    the disk any more: crash() gives a new one."""


@dataclass(slots=True, kw_only=True)
class DiskFaults:
    """What goes wrong, and when. Numbers count the operations that change the disk, from 1."""

    crash_at: int | None = None
    """Stop the machine at this operation; of a write, a part may have happened."""
    fail_at: int | None = None
    """This operation fails with an I/O error."""
    fail_syncs: bool = False
    full_at: range = range(0)
    """These operations find no room: an append is short, a new name is refused."""
    capacity_bytes: int | None = None
    """Writes beyond it are short, as on a full disk."""
    broken_below: tuple[str, ...] = ()
    """Below these directories every change, sync and read fails with an I/O error."""
    read_error: float = 0.0
    """How probable it is that a read fails with an I/O error."""
    sync_delay_s: float = 0.002
    cold_reads: float = 0.0
    """How likely it is that bytes are not in memory: read_now says so then."""
    cold_read_delay_s: float = 0.005

    def is_broken(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{directory}/") for directory in self.broken_below)
