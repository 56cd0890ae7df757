"""Durations as people write them: `500ms`, `10s`, `5m`, `1h30m`, `7d`."""

from __future__ import annotations

import re
from typing import Final

UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
FORM: Final = "a number with a unit (ms, s, m, h, d), such as 500ms, 10s or 1h30m"
_PART: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


def parse_ms(text: str) -> int | None:
    """Milliseconds, or None for what is not a duration."""
    if not _WHOLE.fullmatch(text):
        return None
    return sum(int(number) * UNITS_MS[unit] for number, unit in _PART.findall(text))


def show_ms(duration_ms: int) -> str:
    """The same way back, in as few parts as it takes."""
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        number, duration_ms = divmod(duration_ms, UNITS_MS[unit])
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"
