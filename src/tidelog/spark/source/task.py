"""What a task is told. The planner makes it, in a process that starts for each query: nothing is imported here that
only a worker needs."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.spark.client_config import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """All that a worker needs to know; it is pickled."""

    kafka: dict[str, str]
    topic: str
    partition: int
    start: int
    end: int
    topic_id: str | None
    isolation: Isolation
    headers: bool
    fail_on_data_loss: bool
    silence_s: float
    log_dirs: tuple[str, ...] = ()
    """Where to look for the segments before the broker is asked for their bytes (read=segments)."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from offset {self.start} to {self.end}"
