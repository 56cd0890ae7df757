"""A node starts: a process of its own, with a data directory of its own."""

from __future__ import annotations

from typing import Final

from tools.demo.stage import Stage

TITLE: Final = "A node"


def play(stage: Stage) -> None:
    took_ms = stage.start_node()
    assert stage.node is not None
    stage.story.say(
        f"`tidelog serve` listens on {stage.facts.servers} (pid {stage.node.pid}), ready after {took_ms} ms; "
        f"its log segments are in {stage.folder / 'node'}"
    )
