"""What a view keeps between batches, in the work directory by the query's id: a new checkpoint begins with nothing.

kept/FLOW/QUERY/view.json    what it was made with, the last batch, and how many records there were
kept/FLOW/QUERY/state/       a table, partitioned as the view is: see latest.py and folding.py
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tidelog.runtime.durable import replace_file
from tidelog.spark.pipeline.batch_state import StateError, kept_home, query_of
from tidelog.spark.pipeline.kinds.view import BUCKET, View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.spark.lake import LakeTable


class Noted(msgspec.Struct, frozen=True, kw_only=True):
    definition: dict[str, Any]
    batch: int = -1
    counts: dict[str, int] = {}
    before: dict[str, int] = {}
    """The counts before the last batch, which may come again."""


def definition_of(flow: View) -> dict[str, Any]:
    """What the state and the rows in the table depend on."""
    parts = {
        "from": flow.reads,
        "key": flow.key,
        "envelope": flow.envelope,
        "columns": flow.columns,
        "deletes": flow.deletes,
        "fold": flow.fold,
        "buckets": flow.buckets,
    }
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(parts)))
    return found


class Kept:
    def __init__(self, flow: View, work: Path) -> None:
        self._home = kept_home(work, flow.name)
        self._checkpoint = work / "checkpoints" / flow.name
        self._definition = definition_of(flow)

    def require_same(self) -> None:
        """StateError when the flow has run before by another definition; before it is started."""
        query = query_of(self._checkpoint)
        if query is not None:
            self.noted(query)

    def noted(self, query: str) -> Noted:
        try:
            found = msgspec.json.decode(self._file(query).read_bytes(), type=Noted)
        except FileNotFoundError:
            return Noted(definition=self._definition)
        changed = sorted(key for key, value in self._definition.items() if found.definition.get(key) != value)
        if changed:
            raise StateError(
                f"the flow's {' and '.join(changed)} {'are' if len(changed) > 1 else 'is'} not what its table was made "
                "with; rebuild it with 'tidelog pipeline reprocess', or give the changed flow another name"
            )
        return found

    def begin(self, query: str) -> None:
        """Before the first thing that is written: what a batch that died has left is of this definition."""
        noted = self.noted(query)
        if noted.batch < 0:
            self._write(query, noted)

    def note(self, query: str, batch: int, counted: Mapping[str, int]) -> Noted:
        """After all else of the batch; told again of the same batch, it counts it once."""
        last = self.noted(query)
        before = last.before if last.batch == batch else last.counts
        counts = {name: before.get(name, 0) + number for name, number in counted.items()}
        found = Noted(definition=self._definition, batch=batch, counts=counts, before=before)
        self._write(query, found)
        return found

    def _write(self, query: str, noted: Noted) -> None:
        self._file(query).parent.mkdir(parents=True, exist_ok=True)
        replace_file(str(self._file(query)), msgspec.json.encode(noted))

    def state(self, query: str) -> LakeTable:
        from tidelog.spark.lake import open_table

        place = self._home / query / "state"
        place.parent.mkdir(parents=True, exist_ok=True)
        return open_table(str(place), "parquet", partition_by=(BUCKET,))

    def _file(self, query: str) -> Path:
        return self._home / query / "view.json"


def rows_in(spark: SparkSession, table: LakeTable, buckets: list[int]) -> DataFrame | None:
    """What is committed in these buckets, without the column that names them; None while there is no table."""
    from dataclasses import replace

    from tidelog.spark.lake.frames import frame_of

    taken, wanted = table.snapshot(), {str(bucket) for bucket in buckets}
    files = [(path, partition) for path, partition in taken.files if partition[BUCKET] in wanted]
    found = frame_of(spark, replace(taken, files=files))
    return None if found is None else found.drop(BUCKET)
