"""A flow computed anew in batch from the log, for a proof of what its tables hold.

The plan is the flow's own (plans.py) with a source that reads the log from where the flow began up to where it has
landed. How far that is and what the tables hold must be of the same moment, though the flow may run on:

1. N is the last batch that the checkpoint has committed: all up to N is in the tables.
2. The tables' committed files are taken, with the last batch M that each has of the flow's query.
3. Is no M greater than N, the tables hold exactly the batches up to N. One table alone may hold exactly those up to M:
   the offsets of batch M are in the checkpoint since before it was written. Several tables are looked at again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidelog.spark.pipeline.kinds.ingest import Ingest, source_options
from tidelog.spark.pipeline.model import Flow, Pipeline, Table
from tidelog.spark.pipeline.origins import Origin, OriginError, checkpoint_of, origins_of
from tidelog.spark.pipeline.plans import Plans
from tidelog.spark.pipeline.proof import UnprovableError
from tidelog.spark.pipeline.sinks import table_of
from tidelog.spark.pipeline.starts import is_changed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.spark.lake.frames import Snapshot
    from tidelog.spark.link import At, Link

LOOKS: Final = 20
PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What is read of the topics of one ingest flow."""

    ingest: Ingest
    starts: Mapping[At, int]
    ends: Mapping[At, int]
    gone: Sequence[str]
    """What the log does not have any more of it, in words."""


class Recomputed:
    """All that a kind needs for its proof. UnprovableError says why there is none, before a session is asked for."""

    def __init__(
        self,
        session: Callable[[], SparkSession],
        pipeline: Pipeline,
        flow: Flow,
        tell: Callable[[str], None] = lambda text: None,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.flow = flow
        self.tell = tell
        self.query, self.batch, self._taken = _settled(pipeline, flow, pause or threading.Event().wait)
        try:
            origins = origins_of(pipeline, flow, batch=self.batch)
        except OriginError as error:
            raise UnprovableError(str(error)) from None
        self.stretches = {one.ingest.name: stretch_of(pipeline, one) for one in origins}
        # Temporary views are the session's: a flow that runs in it has its own under the same names.
        self.spark: SparkSession = session().newSession()
        self._plans = batch_plans(self.spark, pipeline, self.stretches)

    @property
    def gone(self) -> list[str]:
        """What the log does not have any more, of all that the flow may have read."""
        return [text for one in self.stretches.values() for text in one.gone]

    @property
    def is_changed(self) -> bool:
        """Rows of the tables were written by another definition of the flow."""
        return is_changed(self.pipeline, self.flow, self.query)

    def stream(self, name: str | None = None) -> DataFrame:
        """The rows that the flow's query got, or another's that it reads, of all batches at once."""
        return self._plans.stream(name or self.flow.name)

    def records(self, ingest: str) -> DataFrame:
        """Of the topics of an ingest flow, as they are in the log."""
        return self._plans.records(self.stretches[ingest].ingest, False)

    def rows(self, table: Table) -> DataFrame | None:
        """What a table of the flow holds; None when there is none."""
        from tidelog.spark.lake.frames import frame_of

        return frame_of(self.spark, self._taken[table.path])

    def is_compacted(self) -> bool:
        """Whether the cleaner has taken records of what the flow read. Reads the headers of all of it."""
        return any(self._has_gaps(one) for one in self.stretches.values())

    def _has_gaps(self, one: Stretch) -> bool:
        from tidelog.spark.audit.log import Reading, read_partition
        from tidelog.spark.audit.log import Stretch as Part
        from tidelog.spark.link import Link

        with Link({**one.ingest.kafka, "bootstrap.servers": self.pipeline.bootstrap_servers}) as link:
            for (topic, partition), end in sorted(one.ends.items()):
                start = one.starts[topic, partition]
                self.tell(f"looking for what was compacted in {topic}-{partition}")
                part = Part(
                    topic=topic,
                    partition=partition,
                    log_start=start,
                    start=start,
                    end=end,
                    stable_end=end,
                    log_end=end,
                    claimed=end,
                )
                gaps = read_partition(link, part, Reading(isolation=one.ingest.isolation)).gaps
                if gaps is None or gaps.offsets:
                    return True
        return False


def batch_plans(spark: SparkSession, pipeline: Pipeline, stretches: Mapping[str, Stretch]) -> Plans:
    """The flows as frames over stretches of the log, by the name of the ingest flow."""

    def read(ingest: Ingest, committing: bool) -> DataFrame:
        one = stretches[ingest.name]
        options = source_options(pipeline, ingest)
        for name in ("subscribe", "subscribePattern", "maxOffsetsPerTrigger", "maxBytesPerTrigger"):
            options.pop(name, None)
        options["assign"] = json.dumps(_nested(dict.fromkeys(one.ends, 0), numbers=True))
        options["startingOffsets"] = json.dumps(_nested(one.starts))
        options["endingOffsets"] = json.dumps(_nested(one.ends))
        options["failOnDataLoss"] = "true"
        return spark.read.format("tidelog").options(**options).load()

    return Plans(spark, pipeline, read)


def _nested(offsets: Mapping[At, int], *, numbers: bool = False) -> dict[str, Any]:
    """By topic: partition to offset, or the partitions alone."""
    found: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        if numbers:
            found.setdefault(topic, []).append(partition)
        else:
            found.setdefault(topic, {})[str(partition)] = offset
    return found


def _settled(
    pipeline: Pipeline, flow: Flow, pause: Callable[[float], object]
) -> tuple[str, int, Mapping[str, Snapshot]]:
    """(query, batch, the tables by their path): the tables hold all batches up to this one, and no other."""
    from tidelog.spark.audit.checkpoint import last_committed, query_of

    checkpoint = checkpoint_of(pipeline, flow)
    for look in range(LOOKS):
        if look:
            pause(PAUSE_S)
        query, committed = query_of(checkpoint), last_committed(checkpoint)
        if query is None or committed < 0:
            raise UnprovableError("it has not finished a batch yet")
        taken = {table.path: table_of(table).snapshot() for table in flow.tables}
        last = max((one.batches.get(query, -1) for one in taken.values()), default=-1)
        if last <= committed or (len(taken) == 1 and (checkpoint / "offsets" / str(last)).exists()):
            return query, max(last, committed), taken
    raise UnprovableError("it was in the middle of a batch whenever it was looked at; try again when it rests")


def stretch_of(pipeline: Pipeline, origin: Origin) -> Stretch:
    """Up to what the flow claims, within the log as it is now."""
    from tidelog.spark.link import Link

    claim, ingest = origin.claim, origin.ingest
    if claim is None or not claim.ends:
        raise UnprovableError(f"its checkpoint has no offsets of the topics of {ingest.name!r}")
    with Link({**ingest.kafka, "bootstrap.servers": pipeline.bootstrap_servers}) as link:
        topics = sorted({topic for topic, _ in claim.ends})
        existing = link.existing(topics)
        if missing := [topic for topic in topics if topic not in existing]:
            raise UnprovableError(f"the log has no topic {missing[0]} any more")
        ids = link.topic_ids(existing)
        anew = [topic for topic, wanted in claim.topic_ids.items() if ids.get(topic, wanted) != wanted]
        if anew := [*anew, *sorted(claim.created_anew)]:
            raise UnprovableError(f"the topic {anew[0]} was deleted and created again: what it had before is gone")
        return _bounded(link, ingest, claim.ends, origin.starts or {})


def _bounded(link: Link, ingest: Ingest, ends: Mapping[At, int], starts: Mapping[At, int]) -> Stretch:
    log_starts, log_ends = link.earliest(ends), link.latest(ends, ingest.isolation)
    gone = []
    for (topic, partition), end in sorted(ends.items()):
        at = (topic, partition)
        if end > log_ends[at]:
            raise UnprovableError(
                f"{topic}-{partition}: landed up to {end - 1}, but the log ends before {log_ends[at]}: its end is lost"
            )
        if log_starts[at] > starts.get(at, 0):
            gone.append(f"{topic}-{partition} begins at {log_starts[at]}")
    begins = {at: min(max(log_starts[at], starts.get(at, 0)), end) for at, end in ends.items()}
    # What is empty is read from the log's start to there, so that it lies within the log.
    within = {at: max(end, log_starts[at]) for at, end in ends.items()}
    return Stretch(ingest=ingest, starts={at: max(begins[at], log_starts[at]) for at in ends}, ends=within, gone=gone)
