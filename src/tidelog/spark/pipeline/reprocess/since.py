"""From where a flow is rebuilt, and whether the log still has what it takes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidelog.kernel.errors import TidelogError
from tidelog.spark.offsets import Offsets, by_partition, names
from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.reprocess.claims import Reach

if TYPE_CHECKING:
    from tidelog.spark.lake import LakeTable
    from tidelog.spark.link import At, Link

Since = int | Mapping["At", int]
"""Milliseconds since 1970, or offsets."""
FORM = 'a time (2026-01-31T12:00:00, UTC unless it names a zone), or offsets as JSON ({"orders": {"0": 1200}})'


class ReprocessError(TidelogError):
    """A flow that cannot be rebuilt; nothing was changed."""


def parse_since(text: str) -> Since:
    try:
        if text.lstrip().startswith("{"):
            return by_partition(json.loads(text))
        moment = datetime.fromisoformat(text)
    except (ValueError, AttributeError) as error:
        raise ReprocessError(f"--since {text} is not {FORM}: {error}") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def resolve(link: Link, partitions: Iterable[At], since: Since, live: Reach) -> dict[At, int]:
    """An offset for every partition, not behind what the flow has landed: what lies between would be in neither."""
    every = sorted(partitions)
    ends = {at: live.least.get(at, 0) for at in every}
    if isinstance(since, int):
        found = link.at_times(dict.fromkeys(every, since))
        return {at: ends[at] if offset is None else min(offset, ends[at]) for at, offset in found.items()}
    if missing := [at for at in every if at not in since]:
        raise ReprocessError(f"--since has no offset for {names(missing)}; every partition needs one")
    if others := [at for at in since if at not in every]:
        raise ReprocessError(f"--since names {names(others)}, which the flow does not read")
    for at in every:
        if since[at] > ends[at]:
            raise ReprocessError(
                f"--since {since[at]} of {at[0]}-{at[1]} is behind what the flow has landed (up to {ends[at]})"
            )
    return {at: since[at] for at in every}


def check_log(link: Link, starts: Mapping[At, int], first: Mapping[At, int], live: Reach) -> None:
    """Refused when the log does not have the records any more from `starts` on. `first`: where the live flow's rows
    begin in each partition, as far as one knows."""
    ids = link.topic_ids({topic for topic, _ in starts})
    changed = {topic for topic, one in live.topic_ids.items() if ids.get(topic, one) != one}
    if changed := changed | live.created_anew.intersection(ids):
        raise ReprocessError(
            f"the topic {min(changed)} was deleted and created again; what was landed of the earlier one is not in the "
            "log any more"
        )
    logs = link.earliest(starts)
    gone = {at: (max(start, first.get(at, 0)), logs[at]) for at, start in starts.items()}
    gone = {at: (begin, end) for at, (begin, end) in gone.items() if begin < min(end, live.least.get(at, 0))}
    if not gone:
        return
    told = [f"{topic}-{number}: offsets {begin} to {end - 1}" for (topic, number), (begin, end) in sorted(gone.items())]
    left = json.dumps(Offsets({at: max(logs[at], starts[at]) for at in starts}).to_json())
    raise ReprocessError(
        f"the log does not have these records any more: {'; '.join(told[:10])}"
        f"{f' and of {len(told) - 10} more partitions' if len(told) > 10 else ''}. "
        f"What was made of them cannot be rebuilt; --since '{left}' keeps it (only ingest and sql over one flow)"
    )


def first_offsets(table: LakeTable) -> dict[At, int]:
    """The least offset of each partition that the table has a row of; SchemaError when its rows do not say."""
    import pyarrow as pa

    found: dict[At, int] = {}
    for batch in table.rows():
        least = pa.Table.from_batches([batch]).group_by(["topic", "partition"]).aggregate([("offset", "min")])
        for row in least.to_pylist():
            at = (row["topic"], row["partition"])
            found[at] = min(row["offset_min"], found.get(at, row["offset_min"]))
    return found


def sources(pipeline: Pipeline, flow: str) -> list[Ingest]:
    """The ingest flows that a flow reads, itself if it is one."""
    from tidelog.spark.pipeline.graph import reached

    inputs = {name: one.inputs for name, one in pipeline.flows.items()}
    found = [pipeline.flows[name] for name in reached(flow, inputs)]
    return [one for one in found if isinstance(one, Ingest)]
