"""Which topics are behind a flow, and how far its checkpoint claims to have come in them.

A checkpoint has a line of offsets for each source of the query, in the order of its plan; nothing has to be planned to
tell whose they are. A flow that reads ingest flows themselves has them in the order of its inputs, so two may be of one
topic. What a query in between makes of that order only Spark knows: then a line is told by the topics that it names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.kernel.errors import TidelogError
from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.model import Flow, Pipeline
from tidelog.spark.pipeline.starts import starts_of

if TYPE_CHECKING:
    from tidelog.spark.audit import Claim
    from tidelog.spark.link import At, Link


class OriginError(TidelogError):
    """What a flow has read cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """One source of a flow's query."""

    ingest: Ingest
    claim: Claim | None
    """None when no batch was committed: nothing is claimed."""
    starts: Mapping[At, int] | None
    """Where it began; None: with the log."""


def origins_of(pipeline: Pipeline, flow: Flow, *, batch: int | None = None) -> list[Origin]:
    """Of each ingest flow behind the flow, itself among them, once. `batch`: up to that one, not the last."""
    from tidelog.spark.audit.checkpoint import claims_of

    ingests = list({one.name: one for one in ingests_behind(pipeline, flow)}.values())
    claims = claims_of(checkpoint_of(pipeline, flow), batch=batch)
    if not claims:
        return [Origin(ingest=ingest, claim=None, starts=None) for ingest in ingests]
    noted = starts_of(pipeline.work, flow.name)
    in_order = (
        flow.inputs == tuple(one.name for one in ingests) and flow.inputs_in_order and len(claims) == len(ingests)
    )
    found = []
    for number, ingest in enumerate(ingests):
        claim = _claim(ingest, claims[number : number + 1] if in_order else claims, len(ingests))
        begun = noted[number : number + 1] if in_order else noted
        found.append(Origin(ingest=ingest, claim=claim, starts=_starts(pipeline, ingest, begun, claim.created_anew)))
    return found


def checkpoint_of(pipeline: Pipeline, flow: Flow) -> Path:
    return pipeline.work / "checkpoints" / flow.name


def topics_of(link: Link, ingest: Ingest) -> list[str]:
    if ingest.topics:
        return list(ingest.topics)
    return [topic for topic in link.topics() if re.fullmatch(ingest.pattern or "", topic)]


def ingests_behind(pipeline: Pipeline, flow: Flow) -> Iterator[Ingest]:
    """Whose topics the flow's query reads; one may come more than once."""
    if isinstance(flow, Ingest):
        yield flow
    for name in flow.inputs:
        yield from ingests_behind(pipeline, pipeline.flows[name])


def _claim(ingest: Ingest, claims: list[Claim], ingests: int) -> Claim:
    if ingests == 1 and len(claims) == 1:
        return claims[0]
    ours = [claim for claim in claims if claim.ends and _is_of(ingest, claim.ends)]
    if not ours:
        raise OriginError(f"its checkpoint has no offsets of the topics of {ingest.name!r}")
    if len(claims) != ingests and any(claim != ours[0] for claim in ours):
        raise OriginError(f"its query reads {ingest.name!r} more than once, and has not come equally far in each")
    if any(claim != ours[0] for claim in ours):
        raise OriginError(f"the topics of {ingest.name!r} are read by another of its flows too, each up to elsewhere")
    return ours[0]


def _is_of(ingest: Ingest, offsets: Mapping[At, int]) -> bool:
    """Its own query reads its retry topic as well."""
    retry = None if ingest.dead_letters is None else ingest.dead_letters.retry_topic
    return all(ingest.takes(topic) or topic == retry for topic, _ in offsets)


def _starts(
    pipeline: Pipeline, ingest: Ingest, noted: Sequence[Mapping[At, int]], anew: frozenset[str]
) -> dict[At, int] | None:
    """A flow that began at the end of its topics owes what came after; of a topic that came anew, all."""
    if ingest.starting != "latest":
        return None
    begun = next((one for one in noted if _is_of(ingest, one)), None)
    if begun is None:
        raise OriginError(f"{ingest.name!r} starts at the latest records, and where that was is not in {pipeline.work}")
    return {at: offset for at, offset in begun.items() if at[0] not in anew}
