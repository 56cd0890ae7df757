"""kill -9 of the Spark driver, with Java and all, in the middle of a batch; a new one goes on from the checkpoints."""

from __future__ import annotations

from typing import Final

from tools.demo.events import TOPICS
from tools.demo.landed import behind, in_the_middle, landed_rows, log_ends
from tools.demo.mending import mend
from tools.demo.stage import Stage

TITLE: Final = "kill -9 of the Spark driver"


def play(stage: Stage) -> None:
    driver, pipeline = stage.pipeline, stage.load()
    assert driver is not None
    stage.wait(lambda: bool(in_the_middle(pipeline)), "a batch begins")
    stage.pipeline = None  # it is meant to be gone
    driver.kill()
    begun = in_the_middle(pipeline)
    batches = ", ".join(f"batch {number} of {name}" for name, number in begun.items()) or "between two batches"
    stage.story.say(f"pid {driver.pid} is gone; half done: {batches}")
    landed = landed_rows(pipeline)
    mend(stage.file)
    stage.story.say(
        "two mistakes in shop.yaml are mended meanwhile: a rule forgot a service, a number had a zero too many"
    )
    again = stage.start_pipeline()
    stage.story.say(f"{landed:,} records had landed; a new driver starts (pid {again.pid}), and the shop goes on")
    ends = log_ends(stage.facts.servers, TOPICS)
    stage.wait(
        lambda: not any(behind(pipeline, ends, ingests=True).values()),
        "the new driver repeats what was half done and goes on",
        lambda: f"{landed_rows(pipeline):,} records landed",
    )
    stage.story.say(f"it repeated those batches and went on: {landed_rows(pipeline):,} records have landed")
