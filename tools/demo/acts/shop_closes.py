"""The shop closes, the pipeline lands the rest and is stopped; what was acknowledged is noted."""

from __future__ import annotations

import time
from typing import Final

from tools.demo.events import TOPICS
from tools.demo.landed import behind, log_ends
from tools.demo.processes import DemoError
from tools.demo.stage import PATIENCE_S, Stage

TITLE: Final = "The shop closes"


def play(stage: Stage) -> None:
    generator, pipeline = stage.generator, stage.load()
    assert generator is not None and stage.pipeline is not None
    stage.wait(
        lambda: stage.story.elapsed_s() >= stage.options.seconds,
        "business goes on",
        lambda: f"{generator.acked_in_all():,} records acknowledged",
    )
    left = generator.close(PATIENCE_S)
    stage.generator = None
    stage.facts.acked, stage.facts.refused = generator.acked(), generator.refused
    stage.facts.closed_ms = time.time_ns() // 1_000_000
    stage.keep_facts()
    if left:
        raise DemoError(f"{left} records were neither acknowledged nor refused within {PATIENCE_S:.0f} s")
    counts = ", ".join(f"{sum(kinds.values()):,} {topic}" for topic, kinds in stage.facts.acked.items())
    stage.story.say(f"the producers know of {generator.acked_in_all():,} acknowledged records: {counts}")
    ends = log_ends(stage.facts.servers, TOPICS)
    stage.wait(
        lambda: not any(behind(pipeline, ends).values()),
        "the flows land the rest",
        lambda: ", ".join(f"{name} {number:,} behind" for name, number in behind(pipeline, ends).items() if number),
    )
    running, stage.pipeline = stage.pipeline, None
    code = running.stop(PATIENCE_S)
    stage.expect(
        code == 0,
        "the flows have landed all of it, and the pipeline has ended in order",
        f"the pipeline ended with exit code {code}; its log is {running.log}",
    )
