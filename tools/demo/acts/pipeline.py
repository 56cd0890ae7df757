"""The pipeline starts, and every flow of it has landed a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidelog.spark.pipeline.kinds import kind_of
from tools.demo.landed import claims, landed_rows
from tools.demo.stage import Stage

TITLE: Final = "The pipeline"
TEMPLATE: Final = Path(__file__).parent.parent / "shop.yaml"
ADDRESS: Final = "127.0.0.1:9092"


def play(stage: Stage) -> None:
    stage.file.write_text(TEMPLATE.read_text().replace(ADDRESS, stage.facts.servers))
    pipeline = stage.load()
    flows = ", ".join(f"{name} ({kind_of(flow).name})" for name, flow in pipeline.flows.items())
    stage.story.say(f"{stage.file} has {len(pipeline.flows)} flows: {flows}")
    stage.story.block("$ tidelog pipeline run shop.yaml")
    driver = stage.start_pipeline()
    stage.story.say(f"Spark starts on this machine (pid {driver.pid}); it takes a while")
    stage.wait(
        lambda: all(claims(pipeline).values()),
        "every flow lands a first batch",
        lambda: f"{sum(map(bool, claims(pipeline).values()))} of {len(pipeline.flows)} have",
    )
    stage.story.say(f"every flow runs; {landed_rows(pipeline):,} records have landed in the lake")
