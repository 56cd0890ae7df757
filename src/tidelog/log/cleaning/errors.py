"""Why a log cannot be cleaned."""

from __future__ import annotations

from tidelog.kernel.errors import TidelogError


class UncleanableError(TidelogError):
    """Something in the log is not what a cleaner can make sense of. Nothing was changed; others are cleaned."""
