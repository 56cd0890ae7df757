"""Which names a topic may have, and which two names are one in metrics."""

from __future__ import annotations

import re
from typing import Final

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")
_LENGTH_MAX: Final = 249


def complaint_about_name(name: str) -> str | None:
    """Why the name is not allowed, None when it is."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > _LENGTH_MAX:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {_LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        return f"Topic name is invalid: '{name}' contains characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def collides(one: str, other: str) -> bool:
    return one != other and one.replace(".", "_") == other.replace(".", "_")
