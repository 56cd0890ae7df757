"""Columns that a flow makes of expressions, as the kinds read them from a file."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from tidelog.spark.pipeline.model import Table
from tidelog.spark.pipeline.section import Section

COLUMN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
COORDINATES: Final = ("topic", "partition", "offset")
"""What tells the records of a log apart, in this order: the order of reading within a partition."""


def named(section: Section, key: str) -> tuple[tuple[str, str], ...]:
    """(column, expression): a list of columns, or {NAME: EXPRESSION}."""
    if section.is_section(key):
        pairs = section.pairs(key)
        for column in pairs:
            if not COLUMN.fullmatch(column):
                section.fault((key, column), "is no name of a column")
        return tuple(pairs.items())
    columns = []
    for text in section.texts(key):
        column = text.rpartition(".")[2]
        if not COLUMN.fullmatch(column):
            section.fault((key,), f"{text!r} needs a name: write {key}: {{NAME: {text}}}")
        columns.append((column, text))
    return tuple(columns)


def beside(table: Table, section: Section, key: str) -> Table:
    """A table in the folder of the flow's own, by default with its name and the key."""
    home, _, name = table.path.rpartition("/")
    return replace(table, path=f"{home}/{section.text(key) or f'{name}_{key}'}")
