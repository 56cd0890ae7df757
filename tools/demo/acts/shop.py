"""A shop opens: four topics, and four producers that write to them until it closes."""

from __future__ import annotations

from typing import Final

from tools.demo.events import TOPICS
from tools.demo.generator import SERVICES, Generator
from tools.demo.stage import Stage

TITLE: Final = "A shop opens"
PARTITIONS: Final = 2


def play(stage: Stage) -> None:
    servers, options = stage.facts.servers, stage.options
    stage.run("topic", "create", *TOPICS, "-p", str(PARTITIONS), "-b", servers)
    stage.generator = generator = Generator(servers, seed=options.seed, rate=options.rate)
    services = ", ".join(f"{service} -> {topic}" for topic, service in SERVICES.items())
    stage.story.say(
        f"four services write about {options.rate:g} records a second (confluent-kafka, acks=all): {services}"
    )
    stage.story.say("some records are late, some payments come twice, and some payloads are broken, as in life")
    stage.wait(lambda: generator.acked_in_all() > 0, "the first record is acknowledged")
