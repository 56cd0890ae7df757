"""One batch of a join of two streams: every row finds partners, waits for them, comes out without one, or is late.

    partners        rows with the same key, the right one's time at most `before` ahead of the left one's, or `after`
                    behind it
    watermark       of each side, the latest event time of its rows so far less `watermark`; it never goes back
    a row is late   when its time is older than its side's watermark of the batch before, or it has none: partners of it
                    may have come out as unmatched
    a row is over   when the other side's watermark has passed its time and how far a partner may be behind it: every
                    partner to come would be late. If it has found none, it comes out as unmatched, once
    a row waits     until it is over, matched or not: it may have several partners

A row that is not late finds all its partners: a partner that was over before this batch is too far from it.

What a batch does, in this order; each step once however often the batch is repeated (batch_state.py, lake.md):

    died after                                          the batch is repeated and
    pairs, late rows or unmatched rows appended         finds those tables done by (query, batch), appends to the others
    rows and marks written to folders of its own        writes them again elsewhere; no manifest names the old ones
    the manifest put in place                           starts from the manifest before it, and finds all tables done
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.spark.pipeline.batch_state import BatchState, Manifest, Terms, kept_home
from tidelog.spark.pipeline.join_batch import MARKS, ROWS, Batch
from tidelog.spark.pipeline.join_rows import is_late, late_rows, marks_of, pair_rows, pairs_of, unmatched_rows
from tidelog.spark.pipeline.kinds.join import SIDES, Interval, Join
from tidelog.spark.pipeline.sinks import Written, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.spark.lake import LakeTable


def terms_of(flow: Join, frame: DataFrame) -> Terms:
    interval = flow.interval
    assert interval is not None
    definition = {
        "left": flow.left,
        "right": flow.right,
        "on": flow.on,
        "time": interval.times,
        "within": [interval.before_ms, interval.after_ms],
        "watermark": interval.watermark_ms,
        "watermark_of": interval.watermark_of,
    }
    return Terms(definition, {ROWS: frame.schema.jsonValue()})


class Joining:
    def __init__(self, flow: Join, home: Path, table: LakeTable, unmatched: LakeTable, late: LakeTable) -> None:
        assert flow.interval is not None
        self._flow = flow
        self._interval: Interval = flow.interval
        self._home = home
        self._table = table
        self._unmatched = unmatched
        self._late = late

    def terms(self, frame: DataFrame) -> Terms:
        return terms_of(self._flow, frame)

    def state(self, query: str, frame: DataFrame) -> BatchState:
        return BatchState(self._home / query, self.terms(frame))

    def run(self, frame: DataFrame, query: str, batch: int, attempt: str) -> Manifest:
        state = self.state(query, frame)
        work = Batch(self._interval, state, state.before(batch), batch, attempt)
        rows = frame.persist()
        pairs: DataFrame | None = None
        once: dict[str, Any] = {"query": query, "batch": batch}
        try:
            found = work.look(rows)
            pairs = pairs_of(self._interval, work.meeting(rows)).persist()
            found["joined"] = _append(self._table, pair_rows(pairs), once)
            marks = marks_of(pairs) if found["joined"] else None
            parts = {ROWS: work.keep_rows(rows), MARKS: work.keep_marks(rows, marks, found["joined"])}
            if found["late"]:
                late = rows.where(is_late(work.watermarks_before))
                self._late.append(late_rows(late, work.watermarks_before), **once)
            if work.may_end:
                over = work.over(rows, marks)
                found["unmatched"] = _append(self._unmatched, unmatched_rows(self._flow, over), once)
            manifest = work.after(parts, found)
            state.keep(manifest)
            return manifest
        finally:
            for one in (pairs, rows):
                if one is not None:
                    one.unpersist()


def _append(table: LakeTable, rows: DataFrame, once: dict[str, Any]) -> int:
    """How many there are: of a batch that is repeated too, when the table has them already."""
    done = table.append(rows, **once)
    return rows.count() if done.skipped else done.rows


class JoinSink:
    def __init__(self, flow: Join, work: Path) -> None:
        self._tables = [table_of(table) for table in (flow.table, flow.unmatched, flow.late)]
        self._step = Joining(flow, kept_home(work, flow.name), *self._tables)

    def write(self, frame: DataFrame, query: str, batch: int, attempt: str) -> Written:
        kept = self._step.run(frame, query, batch, attempt)
        return Written(
            rows=kept.count("joined"),
            late=kept.count("late"),
            watermark_ms=min(kept.sides_ms.values()) if len(kept.sides_ms) == len(SIDES) else None,
            aside={"unmatched": kept.count("unmatched")},
        )

    def tables(self) -> list[LakeTable]:
        return self._tables
