"""`report`: what a pipeline did, on one page that needs nothing but a browser.

`facts` gathers, `flow_charts` and `summary` choose what is shown, `charts` and `graph` draw, `page` and `picture` put
it together. Drawing is pure: the same facts give the same page.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tidelog.kernel.ports import Clock
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.report.facts import Facts, gather

__all__ = ["Facts", "gather", "write_report"]


def write_report(
    pipeline: Pipeline,
    path: str | Path,
    *,
    picture: str | Path | None = None,
    check: bool = True,
    since_ms: int | None = None,
    clock: Clock | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Path:
    """The report of a pipeline that runs or has run, as a file of HTML.

    `picture`: its head as an SVG file too. `check=False` leaves out the audit, which reads the whole log. `since_ms`:
    only what the last so many milliseconds brought.
    """
    from tidelog.runtime.clock import SystemClock
    from tidelog.runtime.durable import replace_file
    from tidelog.spark.pipeline.report.page import page
    from tidelog.spark.pipeline.report.picture import picture as picture_of

    now_ms = (clock or SystemClock()).wall_ms()
    facts = gather(pipeline, now_ms, check=check, since_ms=since_ms, tell=tell)
    replace_file(os.path.abspath(path), page(facts).encode())
    if picture is not None:
        replace_file(os.path.abspath(picture), picture_of(facts).encode())
    return Path(path)
