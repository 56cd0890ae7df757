"""Records that a wrong rule made dead letters are sent back, and land where they belong."""

from __future__ import annotations

import re
from typing import Final

from tidelog.spark.pipeline.kinds.ingest import Ingest
from tools.demo.landed import claims, log_ends
from tools.demo.mending import LETTERS, RULE
from tools.demo.stage import Stage

TITLE: Final = "Dead letters go back"


def play(stage: Stage) -> None:
    pipeline = stage.load()
    flow = pipeline.flows[LETTERS]
    assert isinstance(flow, Ingest) and flow.dead_letters is not None
    stage.story.say(
        f"metrics of one service broke the rule {RULE!r} until it was mended: they are in {flow.dead_letters.topic}"
    )
    _, told = stage.run("pipeline", "redrive", "shop.yaml", LETTERS, "--reason", RULE)
    stage.story.block(told)
    found = re.search(r"^([\d,]+) of [\d,]+ letters? w", told, re.MULTILINE)
    sent = int(found[1].replace(",", "")) if found else 0
    ends = log_ends(stage.facts.servers, (flow.dead_letters.retry_topic,))
    stage.wait(
        lambda: all(claims(pipeline)[LETTERS].get(at, 0) >= end for at, end in ends.items()),
        "the flow reads what came back",
    )
    stage.expect(
        sent > 0,
        f"{sent:,} records were judged again and have landed under the offsets that they have in the log",
        "no letter was sent back",
    )
