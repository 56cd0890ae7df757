"""The two mistakes in shop.yaml, and how the story mends them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

RULE: Final = "known_service"
LETTERS: Final = "metrics"
"""The flow whose rule forgot a service."""
REBUILT: Final = "large_orders"
LARGE: Final = 100.0
_MENDED: Final = {
    "IN ('web', 'checkout', 'search')": "IN ('web', 'checkout', 'search', 'billing')",
    "payload.amount >= 1000": f"payload.amount >= {LARGE:g}",
}


def mend(file: Path) -> None:
    text = file.read_text()
    for wrong, right in _MENDED.items():
        assert text.count(wrong) == 1, wrong
        text = text.replace(wrong, right)
    file.write_text(text)
