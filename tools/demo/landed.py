"""How far the pipeline has come, by its checkpoints, and how far the log goes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidelog.spark.audit.checkpoint import claims_of
from tidelog.spark.link import At, Link
from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.model import Flow, Pipeline


def claims(pipeline: Pipeline) -> dict[str, Mapping[At, int]]:
    """By flow the ends of its last committed batch; nothing for one that has committed none."""
    return {
        name: {at: end for claim in claims_of(_checkpoint(pipeline, name)) for at, end in claim.ends.items()}
        for name in pipeline.flows
    }


def landed_rows(pipeline: Pipeline) -> int:
    """Of the ingest flows. The demo's topics begin at 0 and have nothing but records."""
    ends = claims(pipeline)
    return sum(
        end
        for name, flow in pipeline.flows.items()
        if isinstance(flow, Ingest)
        for at, end in ends[name].items()
        if at[0] in flow.topics
    )


def in_the_middle(pipeline: Pipeline) -> dict[str, int]:
    """Flows with a batch that has begun and is not committed, and its number."""
    found = {}
    for name in pipeline.flows:
        begun = _last(_checkpoint(pipeline, name) / "offsets")
        if begun is not None and begun != _last(_checkpoint(pipeline, name) / "commits"):
            found[name] = begun
    return found


def log_ends(servers: str, topics: tuple[str, ...]) -> dict[At, int]:
    with Link({"bootstrap.servers": servers}) as link:
        places = [(topic, number) for topic, numbers in link.partitions(list(topics)).items() for number in numbers]
        return dict(link.latest(places))


def topics_of(pipeline: Pipeline, flow: Flow) -> tuple[str, ...]:
    """Those that a flow reads, by itself or through others."""
    if isinstance(flow, Ingest):
        return flow.topics
    return tuple(topic for read in flow.inputs for topic in topics_of(pipeline, pipeline.flows[read]))


def behind(pipeline: Pipeline, ends: Mapping[At, int], *, ingests: bool = False) -> dict[str, int]:
    """By flow how many records of its topics are behind its last committed batch; of ingest flows only, or of all."""
    claimed = claims(pipeline)
    return {
        name: sum(
            max(0, end - claimed[name].get(at, 0)) for at, end in ends.items() if at[0] in topics_of(pipeline, flow)
        )
        for name, flow in pipeline.flows.items()
        if not ingests or isinstance(flow, Ingest)
    }


def _checkpoint(pipeline: Pipeline, name: str) -> Path:
    return pipeline.work / "checkpoints" / name


def _last(directory: Path) -> int | None:
    try:
        return max((int(one.name) for one in directory.iterdir() if one.name.isdecimal()), default=None)
    except FileNotFoundError:
        return None
