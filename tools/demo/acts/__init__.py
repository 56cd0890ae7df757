"""The acts, in the order of the story. A new one is a module with a TITLE and `play(stage)`, named here."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from tools.demo.acts import (
    audit,
    driver_dies,
    node,
    node_dies,
    pipeline,
    redrive,
    report,
    reprocess,
    shop,
    shop_closes,
    tables,
)

STORY: Final[tuple[ModuleType, ...]] = (
    node,
    shop,
    pipeline,
    node_dies,
    driver_dies,
    redrive,
    reprocess,
    shop_closes,
    audit,
    tables,
    report,
)
AGAIN: Final[tuple[ModuleType, ...]] = (node, audit, tables, report)
"""What can be played once more on a folder that a finished demo has left."""
