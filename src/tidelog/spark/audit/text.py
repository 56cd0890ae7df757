"""Reports as text for people: tables and counts."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """As tidelog.cli prints its tables, which Spark's part may not import."""
    table = [list(columns), *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table)
    return "\n".join(lines)


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
