"""What the audit raises."""

from __future__ import annotations

from tidelog.kernel.errors import TidelogError


class AuditError(TidelogError):
    """The audit cannot be made; nothing is proved."""
