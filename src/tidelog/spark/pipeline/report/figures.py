"""Numbers, sizes, durations and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_UNITS_MS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))


def count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def short(number: float) -> str:
    """1.2k, 35M: for axes."""
    for bound, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= bound:
            return f"{_three(number / bound)}{unit}"
    return _three(number)


def size(number: int) -> str:
    value, unit = float(number), 0
    while value >= 1024 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{number} B" if unit == 0 else f"{_three(value)} {_SIZES[unit]}"


def _three(value: float) -> str:
    """Digits that count; from 1000 on all of them."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def span(ms: float) -> str:
    """In its two largest units: 1h 5m, 2m 3s, 4.2s, 350ms."""
    whole = max(0, round(ms))
    if whole == 0:
        return "0s"
    if whole < 1000:
        return f"{whole}ms"
    if whole < 60_000:
        return f"{whole / 1000:.3g}s"
    parts: list[str] = []
    for unit, unit_ms in _UNITS_MS[:4]:
        number, whole = divmod(whole, unit_ms)
        if number or parts:
            parts.append(f"{number}{unit}" if number else "")
    return " ".join(part for part in parts[:2] if part)


def moment(ms: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """UTC. A producer's clock may say anything, also what is no date."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
