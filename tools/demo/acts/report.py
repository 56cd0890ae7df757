"""The run as a page to look at, and what the user can do next."""

from __future__ import annotations

from typing import Final

from tools.demo.stage import Stage

TITLE: Final = "The report"
PAGE: Final = "report.html"


def play(stage: Stage) -> None:
    code, told = stage.run("pipeline", "report", "shop.yaml", "--out", PAGE, codes=(0, 1))
    if code:
        stage.fail(f"there is no report: {told.strip()}")
        return
    stage.story.say(f"rates, lag, watermarks, late rows, restarts and the audit: open {stage.folder / PAGE}")
