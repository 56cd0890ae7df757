"""What the log refuses, and what it finds broken on disk."""

from __future__ import annotations

from tidelog.kernel.errors import TidelogError
from tidelog.protocol.errors import ErrorCode


class LogError(TidelogError):
    """A request that the log refuses; the code is what the client hears."""

    def __init__(self, error_code: ErrorCode, message: str = "") -> None:
        super().__init__(message or error_code.name)
        self.error_code = error_code


class CorruptFileError(TidelogError):
    """A file beside the log (index, snapshot, checkpoint) that cannot be believed; most are made again from the log."""


class DamagedLogError(TidelogError):
    """A log that lacks what had been synced, in a way that it cannot be opened without losing more. The message names
    the file and the place; nothing was changed."""


class DirectoryMismatchError(TidelogError):
    """The data directory belongs to another node or cluster, or is not a data directory of ours."""
