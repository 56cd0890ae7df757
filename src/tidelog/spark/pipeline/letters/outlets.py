"""What the audit counts beside the table: dead letters that were not sent back, and records that wait.

    dead        letters in the dead-letter topic, of the flow's checkpoint, that are not in the trail of redriven ones
    retrying    rows that the flow keeps after the batch that its checkpoint claims, and letters in the retry topic that
                lie behind that batch

Between a decision and Spark's own commit of its batch (a flow that runs, or was killed there) records that waited may
be in the table already, or in one of the topics: what waits is then counted only where it is nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tidelog.spark.audit import claim_of
from tidelog.spark.audit.lake import NO_TIME, Table, by_partition
from tidelog.spark.audit.letters import Headers, Letters
from tidelog.spark.link import At, Link
from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.letters import trail
from tidelog.spark.pipeline.letters.checkpoints import query_of
from tidelog.spark.pipeline.letters.decisions import Decided, Decisions
from tidelog.spark.pipeline.letters.headers import QUERY
from tidelog.spark.pipeline.letters.judging import OUTCOME, WAITING
from tidelog.spark.pipeline.letters.sink import definition_of, home_of
from tidelog.spark.pipeline.model import Pipeline

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS: Final = ("topic", "partition", "offset", "timestamp")


class DeadOnes:
    """`rows()` and `reasons()` of the dead letters that stay dead."""

    def __init__(self, link: Link, flow: Ingest, pipeline: Pipeline) -> None:
        assert flow.dead_letters is not None
        self._link = link
        self._topic = flow.dead_letters.topic
        self._flow = flow.name
        self._checkpoint = pipeline.work / "checkpoints" / flow.name

    def rows(self) -> Iterator[pa.RecordBatch]:
        return self._letters().rows()

    def reasons(self) -> dict[str, int]:
        return self._letters().reasons()

    def _letters(self) -> Letters:
        query = query_of(self._checkpoint) or ""
        gone = _by_number(trail.sent(self._link, self._topic))

        def stays(batch: pa.RecordBatch, headers: Headers) -> Any:
            mine = headers.equal(QUERY, query)
            if not len(batch):
                return mine
            # A batch of the source is of one partition.
            sent_back = gone.get(batch.column("partition")[0].as_py(), [])
            return pc.and_(mine, pa.array(~np.isin(batch.column("offset"), sent_back)))

        return Letters(self._link, self._topic, self._flow, keep=stays)


class Retrying:
    """`others`: where a record that waited may be by now."""

    def __init__(self, link: Link, flow: Ingest, pipeline: Pipeline, others: Iterable[Table]) -> None:
        assert flow.dead_letters is not None
        self._link = link
        self._flow = flow
        self._topic = flow.dead_letters.retry_topic
        self._checkpoint = pipeline.work / "checkpoints" / flow.name
        self._home = home_of(pipeline, flow.name)
        self._others = tuple(others)

    def rows(self) -> Iterator[pa.RecordBatch]:
        query = query_of(self._checkpoint)
        if query is None:
            return
        claim = claim_of(self._checkpoint)
        decisions = Decisions(self._home / query, definition_of(self._flow))
        last = decisions.last()
        kept = decisions.of(claim.batch) if claim.batch >= 0 else None
        waiting = [*_kept(decisions.home, kept), *self._sent(query, claim.ends)]
        if last is None or last.batch == claim.batch:
            yield from waiting
        else:
            yield from self._elsewhere(waiting)

    def _sent(self, query: str, ends: Mapping[At, int]) -> Iterator[pa.RecordBatch]:
        starts = {at: end for at, end in ends.items() if at[0] == self._topic}
        mine = Letters(
            self._link,
            self._topic,
            self._flow.name,
            starts=starts,
            keep=lambda batch, headers: headers.equal(QUERY, query),
        )
        return mine.rows()

    def _elsewhere(self, waiting: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Each of them once, without those that are in another outlet."""
        found = _gathered(waiting)
        for other in self._others if found else ():
            for batch in other.rows():
                for at, offsets, _ in by_partition(batch):
                    if at in found:
                        found[at] = found[at][~np.isin(found[at][:, 0], offsets)]
        for (topic, partition), rows in found.items():
            if len(rows):
                times = pa.array(rows[:, 1], pa.timestamp("ms", "UTC"), mask=rows[:, 1] == NO_TIME)
                numbers = pa.repeat(pa.scalar(partition, pa.int32()), len(rows))
                yield pa.record_batch([pa.repeat(topic, len(rows)), numbers, rows[:, 0], times], list(COLUMNS))


def _gathered(batches: Iterable[pa.RecordBatch]) -> dict[At, Any]:
    """(offset, time in ms) of each record once, by its partition: sixteen bytes, and no object, for one that waits."""
    found: dict[At, list[Any]] = {}
    for batch in batches:
        for at, offsets, times in by_partition(batch):
            found.setdefault(at, []).append(np.column_stack([offsets, times]))
    whole = {at: np.concatenate(rows) for at, rows in found.items()}
    return {at: rows[np.unique(rows[:, 0], return_index=True)[1]] for at, rows in whole.items()}


def _by_number(places: Collection[tuple[int, int]]) -> dict[int, Any]:
    """The offsets of each partition."""
    every = np.array(sorted(places), np.int64).reshape(-1, 2)
    return {int(number): every[every[:, 0] == number, 1] for number in np.unique(every[:, 0])}


def _kept(home: Path, decided: Decided | None) -> Iterator[pa.RecordBatch]:
    if decided is None or decided.data is None or not decided.count(WAITING):
        return
    folder = home / decided.data / f"{OUTCOME}={WAITING}"
    yield from ds.dataset(folder, format="parquet").to_batches(columns=list(COLUMNS))
