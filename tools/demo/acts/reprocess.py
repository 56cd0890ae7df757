"""A table that was made by a wrong query is made anew from the log, beside the live one, and swapped in."""

from __future__ import annotations

from typing import Final

from tools.demo.mending import LARGE, REBUILT
from tools.demo.stage import Stage
from tools.demo.tables import opened, read

TITLE: Final = "A table is rebuilt from the log"


def play(stage: Stage) -> None:
    table = opened(stage.load().flows[REBUILT].table)
    before = table.count() if table.exists() else 0
    stage.run("pipeline", "reprocess", "shop.yaml", "--flow", REBUILT, "--yes")
    amounts = [row["amount"] for row in read(table)]
    stage.expect(
        len(amounts) > before and min(amounts) >= LARGE,
        f"{REBUILT} had {before:,} rows, few of them from before the number was mended, and has {len(amounts):,} now",
        f"{REBUILT} has {len(amounts)} rows after {before}, the least of {min(amounts, default=None)}",
    )
