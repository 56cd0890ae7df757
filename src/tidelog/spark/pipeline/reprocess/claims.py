"""How far checkpoints have come, over all the sources of a query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.spark.audit.checkpoint import claims_of

if TYPE_CHECKING:
    from tidelog.spark.link import At


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The last batch that is done, and its ends: of a partition that two sources read, the lesser and the greater."""

    batch: int = -1
    least: Mapping[At, int] = field(default_factory=dict)
    most: Mapping[At, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    created_anew: frozenset[str] = frozenset()

    def lacks(self, other: Reach) -> list[At]:
        """Where the other one has come further, of what both read."""
        return sorted(at for at, end in other.most.items() if at in self.least and self.least[at] < end)


def reach_of(checkpoint: Path) -> Reach:
    claims = claims_of(checkpoint)
    if not claims:
        return Reach()
    least: dict[At, int] = {}
    most: dict[At, int] = {}
    ids: dict[str, str] = {}
    for claim in claims:
        ids |= claim.topic_ids
        for at, end in claim.ends.items():
            least[at] = min(end, least.get(at, end))
            most[at] = max(end, most.get(at, end))
    anew = frozenset(topic for claim in claims for topic in claim.created_anew)
    return Reach(batch=claims[0].batch, least=least, most=most, topic_ids=ids, created_anew=anew)
