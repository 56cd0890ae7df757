"""Tables of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.spark.pipeline.report.markup import Markup, tag


class Cell(NamedTuple):
    content: str
    kind: str | None = None


def table(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Markup:
    """A column stands as its first cell does."""
    kinds = [(cell.kind or "").split(" ")[0] for cell in rows[0]] if rows else [""] * len(heads)
    first = [tag("th", head, class_="num" if kind == "num" else None) for head, kind in zip(heads, kinds, strict=True)]
    body = [tag("tr", *(tag("td", cell.content, class_=cell.kind) for cell in row)) for row in rows]
    return tag("table", tag("thead", tag("tr", *first)), tag("tbody", *body))
