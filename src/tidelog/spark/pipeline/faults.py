"""What is wrong with a pipeline: every fault with its key, its line and what would be right, all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from tidelog.kernel.errors import TidelogError

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    path: Path  # ("flows", "orders", "format"); empty for the file as a whole
    text: str
    line: int | None = None  # counted from 1; none in a pipeline that was made in Python by hand

    def __str__(self) -> str:
        where = [] if self.line is None else [f"line {self.line}"]
        where += [".".join(self.path)] if self.path else []
        return ": ".join([*where, self.text])


class PipelineError(TidelogError):
    """A pipeline that cannot be run; nothing was started."""

    def __init__(self, faults: Sequence[Fault], source: str = "the pipeline") -> None:
        assert faults
        self.faults = tuple(sorted(faults, key=lambda fault: fault.line or 0))
        many = f"{len(faults)} errors" if len(faults) > 1 else "an error"
        super().__init__("\n".join([f"{source} has {many}; nothing was started", *(f"  {f}" for f in self.faults)]))


def allowed(name: str, known: Iterable[str]) -> str:
    """The allowed names, and the one that was probably meant."""
    names = list(known)
    close = get_close_matches(name, names, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}allowed: {', '.join(names) or 'none'}"
