"""What was found tier by tier: for programs, as JSON, and as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.audit.notices import LAKE, LOG, PRODUCER
from tidelog.audit.tiers import VERDICTS, TierWindow, Verdict
from tidelog.spark.audit.text import aligned, counted
from tidelog.spark.audit.windows import window_name

NAMED_LINES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TierReport:
    windows: list[TierWindow]
    window_ms: int
    notes: list[str] = field(default_factory=list)
    """What could not be compared, and why."""

    @property
    def verdicts(self) -> Counter[Verdict]:
        """How many windows there are of each."""
        return Counter(one.verdict for one in self.windows)

    @property
    def off(self) -> list[TierWindow]:
        return [one for one in self.windows if one.verdict == "off"]

    @property
    def unknown(self) -> list[TierWindow]:
        return [one for one in self.windows if one.verdict == "unknown"]

    @property
    def tiers(self) -> list[str]:
        """In the order of a record's way."""
        named = {tier for one in self.windows for tier in one.counts}
        readers = sorted(named - {PRODUCER, LOG, LAKE})
        return [PRODUCER, LOG, *readers, *([LAKE] if LAKE in named else [])]

    def table(self, *, named_lines: int = NAMED_LINES) -> str:
        shown = self._shown(named_lines)
        parts = []
        if shown:
            columns = ("TOPIC", "WINDOW", *(tier.upper() for tier in self.tiers), "VERDICT")
            parts.append(aligned(columns, [self._row(one) for one in shown]))
            if more := len(self.windows) - len(shown):
                parts[-1] += f"\nand {counted(more, 'more window')}"
        reasons = [
            f"{one.topic} {window_name(one.begin_ms)}: {one.verdict}: {'; '.join(one.reasons)}"
            for one in shown
            if one.reasons
        ]
        if reasons or self.notes:
            parts.append("\n".join([*reasons, *self.notes]))
        return "\n\n".join([*parts, self.summary()])

    def summary(self) -> str:
        """One sentence."""
        found = self.verdicts
        of_each = ", ".join(f"{found[verdict]} {verdict}" for verdict in VERDICTS if found[verdict])
        windows = f"{counted(len(self.windows), 'window')} of {self.window_ms / 1000:g} s"
        return f"tier by tier: {windows}{': ' if of_each else ''}{of_each}"

    def as_json(self) -> dict[str, Any]:
        return {
            "window_ms": self.window_ms,
            "verdicts": {verdict: self.verdicts[verdict] for verdict in VERDICTS},
            "windows": [one._asdict() for one in self.windows],
            "notes": self.notes,
        }

    def _row(self, one: TierWindow) -> Sequence[object]:
        return (one.topic, window_name(one.begin_ms), *(one.counts.get(tier) for tier in self.tiers), one.verdict)

    def _shown(self, limit: int) -> list[TierWindow]:
        """The latest ones where there are too many, and of those that balance fewer."""
        order = {"off": 0, "unknown": 1, "open": 2, "balanced": 3}
        chosen = sorted(self.windows, key=lambda one: (order[one.verdict], -one.begin_ms))[:limit]
        return [one for one in self.windows if one in chosen]
