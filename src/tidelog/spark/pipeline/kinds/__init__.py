"""The kinds of flows there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.spark.pipeline.kinds import aggregate, dedupe, ingest, join, publish, sql, view
from tidelog.spark.pipeline.kinds.kind import AnyKind
from tidelog.spark.pipeline.model import Flow

KINDS: Final[Mapping[str, AnyKind]] = {
    kind.name: kind for kind in (ingest.KIND, sql.KIND, aggregate.KIND, dedupe.KIND, join.KIND, publish.KIND, view.KIND)
}
_BY_FLOW: Final = {kind.flow: kind for kind in KINDS.values()}


def kind_of(flow: Flow) -> AnyKind:
    return _BY_FLOW[type(flow)]
