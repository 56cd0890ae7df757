"""Elements of HTML and SVG as text. Whatever is not an element is escaped: names and errors come from outside."""

from __future__ import annotations

import re
from html import escape
from typing import Final

# What XML allows; an error's text may hold anything.
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_VOID: Final = frozenset({"br", "meta", "circle", "line", "path", "polyline", "rect", "polygon"})


class Markup(str):
    """Text that is an element already."""

    __slots__ = ()


Child = str | int | None


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """`class_` for class, `stroke_width` for stroke-width; None is left out."""
    shown = "".join(
        f' {key.strip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if not children and name in _VOID:
        return Markup(f"<{name}{shown}/>")
    return Markup(f"<{name}{shown}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    return Markup("".join(text(child) for child in children if child is not None))


def text(value: str | int) -> Markup:
    if isinstance(value, Markup):
        return value
    return Markup(escape(_FORBIDDEN.sub("\ufffd", str(value))))


def _value(value: str | float) -> str:
    """Coordinates to a tenth: a page has thousands of them."""
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return text(str(value))


def points(pairs: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)
