"""The line of documentation of each config (docs.tsv). Read at the first question: a start-up asks none."""

from __future__ import annotations

import os
from functools import cache


@cache
def texts() -> dict[str, str]:
    """By name, or by scope/name where one name means two things."""
    with open(os.path.join(os.path.dirname(__file__), "docs.tsv"), encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file if line.strip() and not line.startswith("#")]
    return dict(line.split("\t", 1) for line in lines)
