"""What the demo prints: numbered acts, lines with the time that has passed, progress while it waits.

In a terminal with colour and a live line (rich); elsewhere plain lines, and one every few seconds while it waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.text import Text

_PLAIN_EVERY_S: Final = 5.0
Show = Callable[[str], None]


class Story:
    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._started_s = time.monotonic()
        self._acts = 0

    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def act(self, title: str) -> None:
        self._acts += 1
        self._line("")
        self._line(f"{self._acts}. {title}", "bold")

    def say(self, text: str, style: str = "") -> None:
        self._line(f"{self.elapsed_s():6.1f} s  {text}", style)

    def good(self, text: str) -> None:
        self.say(text, "green")

    def bad(self, text: str) -> None:
        self.say(text, "bold red")

    def block(self, text: str) -> None:
        """Output of a command, or a table: as it is, under the story's lines."""
        for line in text.rstrip().splitlines():
            self._line(f"          {line}".rstrip(), "dim" if line.startswith("$ ") else "")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        cells = [list(columns), *([_cell(value) for value in row] for row in rows)]
        widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
        self.block("\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells))

    @contextmanager
    def progress(self) -> Iterator[Show]:
        """A function that may be called often with a text of how far it is."""
        if self._console.is_terminal:
            with self._console.status("") as status:
                yield lambda text: status.update(f"[dim]{self.elapsed_s():6.1f} s  {text}[/dim]")
            return
        shown_s = time.monotonic()

        def show(text: str) -> None:
            nonlocal shown_s
            if time.monotonic() - shown_s >= _PLAIN_EVERY_S:
                shown_s = time.monotonic()
                self.say(f"... {text}")

        yield show

    def _line(self, text: str, style: str = "") -> None:
        # Text, not markup: what a producer wrote may have brackets in it.
        self._console.print(Text(text, style), soft_wrap=True)


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return "-" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}" if isinstance(value, float) else str(value)
