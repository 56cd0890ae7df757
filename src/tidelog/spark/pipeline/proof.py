"""What a proof by recomputing found: for programs, as JSON, and as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tidelog.kernel.errors import TidelogError
from tidelog.spark.audit.text import aligned

Verdict = Literal["balanced", "off", "unknown"]
NAMED_LINES: Final = 20


class UnprovableError(TidelogError):
    """Why nothing can be proved of a flow; becomes a proof that is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """`counts` are its columns, in their order; those that `faults` names are wrong when they are not 0."""

    counts: Mapping[str, int] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    """A line for each row that is named; the counts have how many there are."""
    unknown: str = ""
    """Why nothing is proved. What is wrong all the same, whatever is unknown, is in the counts."""
    remarks: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        if any(self.counts.get(fault) for fault in self.faults):
            return "off"
        return "unknown" if self.unknown else "balanced"

    @property
    def balanced(self) -> bool:
        return self.verdict == "balanced"

    def fails(self, strict: bool) -> bool:
        return self.verdict == "off" or (strict and not self.balanced)

    # For people

    def table(self, *, named_lines: int = NAMED_LINES) -> str:
        parts = [aligned([name.upper() for name in self.counts], [list(self.counts.values())])] if self.counts else []
        if notes := self.notes(named_lines):
            parts.append("\n".join(notes))
        return "\n\n".join([*parts, self.summary()])

    def notes(self, named_lines: int = NAMED_LINES) -> list[str]:
        return [*self.examples[:named_lines], *self.remarks]

    def summary(self) -> str:
        if self.verdict == "off":
            wrong = [f"{self.counts[fault]} {fault}" for fault in self.faults if self.counts.get(fault)]
            return f"does not balance: {', '.join(wrong)}"
        if self.verdict == "unknown":
            return f"unknown: {self.unknown}"
        counted = ", ".join(f"{number} {name}" for name, number in self.counts.items() if name not in self.faults)
        return f"balanced: the table is what the log gives when it is computed anew ({counted})"

    # For programs

    def as_json(self) -> dict[str, Any]:
        return {
            "balanced": self.balanced,
            "verdict": self.verdict,
            "counts": dict(self.counts),
            "faults": list(self.faults),
            "examples": list(self.examples),
            "unknown": self.unknown or None,
            "remarks": list(self.remarks),
        }
