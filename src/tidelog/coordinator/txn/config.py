"""What the transaction coordinator needs of the broker's configuration; names and defaults are Kafka's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    abort_timed_out_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms"""
    remove_expired_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms"""
    state_log_num_partitions: int = 50
    """transaction.state.log.num.partitions"""


WAIT_MS = 500
"""How long a request waits for the markers of the transaction before, rather than have the client ask again. Apache
tries for 100 ms on behalf of version 2, and sends everybody else away at once."""
WAITING_MAX = 64
"""How many such requests may wait for one transactional id."""
MARKERS_BACKOFF_MS = 100
MARKERS_BACKOFF_MS_MAX = 5_000
MARKERS_TIMEOUT_MS = 30_000
"""When markers of which nothing was heard are sent again."""
SCHEDULED_PER_TICK = 1_000
DUE_PER_TICK = 200
"""What one turn of the loop takes care of, when thousands are due at once."""
