"""What the transaction coordinator of a node has done, for the metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Counters:
    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    fenced: int = 0
    expired: int = 0
    marker_retries: int = 0
    stale_requests: int = 0
    """Of a connection that a younger one of the same transactional id has replaced."""
    verified: int = 0
