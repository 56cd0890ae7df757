"""What can be wrong with a table or with what is to be written into it; none of it is retried here."""

from __future__ import annotations

from tidelog.kernel.errors import TidelogError


class LakeError(TidelogError):
    """A table cannot be opened, written or kept as asked."""


class SchemaError(LakeError):
    """The frame does not fit the table; nothing was written."""


class FilesLostError(LakeError):
    """Files of a batch were gone before its commit: the batch must be written again, nothing of it is in the table."""


class DamagedError(LakeError):
    """A file that the table names is gone or cannot be read: its rows are lost, and how many cannot be told."""
