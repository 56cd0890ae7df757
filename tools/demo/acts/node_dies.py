"""kill -9 of the node while producers write and the pipeline reads; the same data directory serves again."""

from __future__ import annotations

from typing import Final

from tools.demo.events import TOPICS
from tools.demo.landed import behind, log_ends
from tools.demo.stage import Stage

TITLE: Final = "kill -9 of the node"
HELD: Final = 100
"""Records that the producers must hold while it is away, for the story to show something."""


def play(stage: Stage) -> None:
    node, generator = stage.node, stage.generator
    assert node is not None and generator is not None
    stage.node = None  # it is meant to be gone
    node.kill()
    acked = {topic: sum(kinds.values()) for topic, kinds in generator.acked().items()}
    stage.story.say(f"pid {node.pid} is gone in mid-flight, {sum(acked.values()):,} records had been acknowledged")
    stage.wait(
        lambda: generator.under_way >= HELD,
        "producers keep what is not acknowledged",
        lambda: f"{generator.under_way:,}",
    )
    held = generator.under_way
    took_ms = stage.start_node()
    ends = log_ends(stage.facts.servers, TOPICS)
    kept = {topic: sum(end for at, end in ends.items() if at[0] == topic) for topic in TOPICS}
    lost = {topic: acked[topic] - kept[topic] for topic in TOPICS if kept[topic] < acked[topic]}
    stage.story.say(
        f"a new process on the same directory is ready after {took_ms} ms; the producers hold {held:,} records"
    )
    stage.expect(
        not lost,
        "every record that had been acknowledged is in the log",
        f"records that were acknowledged are not in the log: {lost}",
    )
    before = generator.acked_in_all()
    stage.wait(lambda: generator.acked_in_all() > before, "the producers deliver what they held")
    pipeline = stage.load()
    ends = log_ends(stage.facts.servers, TOPICS)
    stage.wait(
        lambda: not any(behind(pipeline, ends, ingests=True).values()),
        "the flows go on where they were",
        lambda: f"{max(behind(pipeline, ends, ingests=True).values()):,} records behind",
    )
    stage.story.say("the producers sent again what they held, and the topics' flows have read on from where they were")
