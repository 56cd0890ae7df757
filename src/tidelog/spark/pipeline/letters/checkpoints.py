"""What a flow's checkpoint says, in files of Spark: its query's id, and whether a batch has read a topic."""

from __future__ import annotations

import json
from pathlib import Path


def query_of(checkpoint: Path) -> str | None:
    """None for a flow that has not run yet."""
    try:
        found: str = json.loads((checkpoint / "metadata").read_bytes())["id"]
    except FileNotFoundError:
        return None
    return found


def has_read(checkpoint: Path, batch: int, topic: str) -> bool:
    from tidelog.spark.audit.checkpoint import offsets_of

    offsets = checkpoint / "offsets" / str(batch)
    return offsets.exists() and any(name == topic for name, _ in offsets_of(offsets))
