"""The error classes that every layer shares.

ProtocolError is the peer's fault: the connection is closed. DiskError is the machine's. A Kafka error code is a value
(tidelog.protocol.errors), never one of these; an assert is our own bug.
"""

from __future__ import annotations


class TidelogError(Exception):
    """The root of what Tidelog raises on purpose."""


class ProtocolError(TidelogError):
    """Bytes from a peer, or from a file, that are not what the protocol allows."""


class DiskError(TidelogError):
    """A file operation failed in a way that makes the log directory untrustworthy (EIO, a failed sync)."""


class DiskFullError(DiskError):
    """There was no room: what was written of the request has been rolled back, and the directory stays online."""


class DirectoryLockedError(TidelogError):
    """Another process holds the data directory."""


class ListenError(TidelogError):
    """An address cannot be listened on: taken, not ours, not allowed. The message says which and what to do."""


class HelperGoneError(TidelogError):
    """A helper process ended in the middle of a job: killed by somebody, or by the system for its memory."""


class JobFailedError(TidelogError):
    """A job in a helper process has raised what it never raises on purpose: a bug of ours. Where, `trace` tells."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message, trace)
        self.trace = trace

    def __str__(self) -> str:
        return str(self.args[0])

    @classmethod
    def of(cls, error: Exception) -> JobFailedError:
        from traceback import format_exception

        return cls(repr(error), "".join(format_exception(error)))
