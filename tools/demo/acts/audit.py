"""The audit: what the producers know, what the log has, what the tables have. All of it must agree."""

from __future__ import annotations

import time
from typing import Final

from tidelog.spark.pipeline.kinds.ingest import Ingest
from tools.demo.events import TOPICS
from tools.demo.generator import AUDIT_WINDOW_MS
from tools.demo.landed import log_ends
from tools.demo.stage import Stage
from tools.demo.tables import opened, rows_in

TITLE: Final = "The audit"
OUTPUT: Final = "check.txt"


def play(stage: Stage) -> None:
    over_s = -(-stage.facts.closed_ms // AUDIT_WINDOW_MS) * AUDIT_WINDOW_MS / 1000
    stage.wait(lambda: time.time() > over_s, "the last window of the producers' counts ends")
    # Strict: what nobody can tell would not do either.
    code, told = stage.run("pipeline", "check", "shop.yaml", "--strict", codes=(0, 1))
    (stage.folder / OUTPUT).write_text(told)
    stage.story.block(told if code else _in_short(told))
    stage.expect(
        code == 0,
        f"log and lake balance, and so do the windows of {AUDIT_WINDOW_MS // 1000} s by tier; more in {OUTPUT}",
        "the audit does not balance: see above what is missing or doubled",
    )
    _compare(stage)


def _in_short(told: str) -> str:
    """The flows' names and the sentences, without the tables and how many windows those leave out."""
    return "\n".join(line for line in told.splitlines() if line and "  " not in line and line[:4] != "and ")


def _compare(stage: Stage) -> None:
    """The producers' own counts with the log's ends and the rows in the tables' files."""
    flows = [flow for flow in stage.load().flows.values() if isinstance(flow, Ingest)]
    ends = log_ends(stage.facts.servers, TOPICS)
    rows = []
    for flow in flows:
        (topic,) = flow.topics
        in_log = sum(end for at, end in ends.items() if at[0] == topic)
        # Whose letters they are, by coordinates, is what `check` has looked at.
        letters = stage.facts.acked[topic].get("broken", 0) if flow.dead_letters is not None else 0
        rows.append((topic, sum(stage.facts.acked[topic].values()), in_log, rows_in(opened(flow.table)), letters))
    stage.story.table(("TOPIC", "ACKNOWLEDGED", "IN THE LOG", "IN THE LAKE", "BROKEN, DEAD LETTERS"), rows)
    # What a client gave up may be in the log or not: nobody can know.
    refused = stage.facts.refused
    stage.expect(
        all(
            acked <= in_log <= acked + refused and in_lake is not None and in_log == in_lake + letters
            for _, acked, in_log, in_lake, letters in rows
        ),
        "what was acknowledged to the producers is what the log has and what the lake and the dead letters have",
        "producers, log and lake do not agree",
    )
