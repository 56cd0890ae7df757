"""What a check has found: every anomaly counted, the first few of each kept with the operations that show it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.history import Op

ERRORS: Final = (
    "inconsistent-offsets",
    "duplicate",
    "lost-write",
    "unseen",
    "torn-transaction",
    "phantom",
    "G1a",
    "dirty-read",
    "precommitted-read",
    "poll-skip",
    "int-poll-skip",
    "nonmonotonic-poll",
    "int-nonmonotonic-poll",
    "nonmonotonic-send",
    "int-nonmonotonic-send",
    "G1c",
    "double-owner",
    "zombie-commit",
    "commit-regressed",
    "lost-commit",
    "aborted-commit",
    "phantom-commit",
    "commit-skip",
    "output-missing",
    "output-duplicate",
    "output-invented",
    "output-reordered",
    "lost-key",
    "stale-key",
    "revived-key",
    "wrong-total",
)
NOTICES: Final = ("G0", "G1c-ww", "int-send-skip")
KEPT: Final = 5


@dataclass(frozen=True)
class Anomaly:
    name: str
    text: str
    ops: tuple[Op, ...] = ()


@dataclass
class Report:
    counts: Counter[str] = field(default_factory=Counter)
    notices: Counter[str] = field(default_factory=Counter)
    examples: list[Anomaly] = field(default_factory=list)
    consume_counts: Counter[int] = field(default_factory=Counter)
    """How many values were polled by members of a group how often."""
    figures: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.counts

    def error(self, name: str, text: str, *ops: Op) -> None:
        assert name in ERRORS, name
        self.counts[name] += 1
        if self.counts[name] <= KEPT:
            self.examples.append(Anomaly(name, text, ops))

    def notice(self, name: str) -> None:
        self.notices[name] += 1

    def lines(self) -> list[str]:
        """For people."""
        found = [", ".join(f"{count:,} {name}" for name, count in self.figures.items())]
        for anomaly in self.examples:
            found.append(f"{anomaly.name}: {anomaly.text}")
            found += [f"    {_shown(op)}" for op in anomaly.ops]
        if self.notices:
            found.append("allowed: " + ", ".join(f"{count:,} {name}" for name, count in sorted(self.notices.items())))
        if self.consume_counts:
            times = ", ".join(f"{count:,} × {times}" for times, count in sorted(self.consume_counts.items()))
            found.append(f"values polled by groups, how often: {times}")
        if self.ok:
            found.append("no anomalies")
        else:
            found.append("ANOMALIES: " + ", ".join(f"{count:,} {name}" for name, count in sorted(self.counts.items())))
        return found


def _shown(op: Op) -> str:
    actions = ", ".join(str(action) for action in op.actions[:6]) + (", ..." if len(op.actions) > 6 else "")
    return f"{op.process}#{op.number} {op.outcome} [{actions}] {op.note}".rstrip()
