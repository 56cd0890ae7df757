"""The client's settings that every part of it shares."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from tidelog.client.security import PLAINTEXT, Security

SOFTWARE_NAME: Final = "tidelog"
SOFTWARE_VERSION: Final = "0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    client_id: str = "tidelog"
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    api_timeout_s: float = 60.0
    """How long one operation may take with all its retries."""
    bootstrap_timeout_s: float = 0.0
    """How long to try again while no broker has ever answered. 0: a typing error in an address shows at once."""
    missing_grace_s: float = 0.5
    """How long to look for a topic or partition before it is said not to exist."""
    retry_backoff_ms: float = 50.0
    retry_backoff_ms_max: float = 1_000.0
    metadata_max_age_s: float = 300.0
    response_bytes_max: int = 256 * 1024 * 1024
    in_flight_max: int = 256
    security: Security = PLAINTEXT

    def backoff_s(self, attempt: int, random: Random) -> float:
        """Doubles per attempt, with a jitter of a fifth: clients that failed together do not return together."""
        delay_ms = min(self.retry_backoff_ms * 2.0 ** min(attempt, 30), self.retry_backoff_ms_max)
        return delay_ms * random.uniform(0.8, 1.2) / 1000
