"""What a batch of a join starts from, what it finds, and the folders that are left after it; the rules: joining.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from tidelog.spark.pipeline.batch_state import BatchState, Folder, Manifest, later, small_ones
from tidelog.spark.pipeline.join_rows import KEY, MARK, MS, SIDE, effective, is_late, is_over
from tidelog.spark.pipeline.kinds.join import SIDES, Interval, Side
from tidelog.spark.pipeline.rows import FEW_ROWS, asked_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS: Final = "rows"
"""The part of the state with the rows that are not over, matched or not."""
MARKS: Final = "marks"
"""Which of them have found a partner: so no row is written again when one comes."""


class Batch:
    def __init__(self, interval: Interval, state: BatchState, before: Manifest, batch: int, attempt: str) -> None:
        self._interval = interval
        self._state = state
        self._before = before
        self._batch = batch
        self._attempt = attempt
        self.watermarks_before = effective(interval, before.sides_ms)
        self._sides_ms: dict[str, int] = {}
        self._watermarks: dict[Side, int] = {}
        self._stays = self._no_key = 0

    def look(self, rows: DataFrame) -> dict[str, int]:
        """Counts, and the watermarks after the batch."""
        from pyspark.sql import functions as F

        late = is_late(self.watermarks_before)
        of = {side: F.when(F.col(SIDE) == side, F.col(MS)) for side in SIDES}
        stays = ~late & F.col(KEY).isNotNull()
        found = rows.agg(
            F.count_if(late).alias("late"),
            F.count_if(stays).alias("stays"),
            F.count_if(~late & F.col(KEY).isNull()).alias("no_key"),
            *(F.max(of[side]).alias(f"{side}_latest") for side in SIDES),
        ).first()
        assert found is not None
        for side in SIDES:
            ms = later(self._before.sides_ms.get(side), found[f"{side}_latest"], self._interval.watermark_ms)
            if ms is not None:
                self._sides_ms[side] = ms
        self._watermarks = effective(self._interval, self._sides_ms)
        self._stays, self._no_key = found["stays"], found["no_key"]
        return {"late": found["late"], "unmatched": 0}

    def meeting(self, rows: DataFrame) -> DataFrame:
        """Rows that may be partners in this batch (`_new`: its own), and those that waited for them."""
        from pyspark.sql import functions as F

        fresh = self._on_time(rows)
        stored = self._stored(ROWS, rows, self.watermarks_before)
        found = fresh.withColumn("_new", F.lit(True))
        if stored is None:
            return found
        asked = asked_for(stored, fresh, KEY, self._stays <= FEW_ROWS)
        return asked.select(*rows.columns, F.lit(False).alias("_new")).unionByName(found)

    def _waiting(self, rows: DataFrame) -> DataFrame:
        """All that waited for this batch, and its own."""
        fresh = self._on_time(rows)
        stored = self._stored(ROWS, rows, self.watermarks_before)
        return fresh if stored is None else stored.unionByName(fresh)

    @property
    def may_end(self) -> bool:
        """Whether rows may come out without a partner: a watermark has moved, some have no key, or some are new.

        Where the other side is far ahead, a row that is in time for its own side is over as it comes, though no
        watermark moves for it. It is not kept, so it comes out now or never."""
        return self._no_key > 0 or self._stays > 0 or self._watermarks != self.watermarks_before

    def over(self, rows: DataFrame, marks: DataFrame | None) -> DataFrame:
        """Rows that no partner has come for, and none will."""
        from pyspark.sql import functions as F

        ended = self._waiting(rows).where(is_over(self._interval, self._watermarks))
        for found in (marks, self._stored(MARKS, rows.select(*MARK), self.watermarks_before)):
            if found is not None:
                ended = ended.join(found, list(MARK), "left_anti")
        no_key = rows.where(~is_late(self.watermarks_before) & F.col(KEY).isNull())
        return ended.select(*rows.columns).unionByName(no_key)

    def keep_rows(self, rows: DataFrame) -> list[Folder]:
        return self._keep(ROWS, self._on_time(rows), self._stays)

    def keep_marks(self, rows: DataFrame, marks: DataFrame | None, number: int) -> list[Folder]:
        return self._keep(MARKS, rows.select(*MARK).limit(0) if marks is None else marks, number)

    def after(self, parts: dict[str, list[Folder]], found: dict[str, int]) -> Manifest:
        return msgspec.structs.replace(
            self._before,
            batch=self._batch,
            sides_ms=self._sides_ms,
            parts=parts,
            counts={name: self._before.count(name) + number for name, number in found.items()},
        )

    def _on_time(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return rows.where(~is_late(self.watermarks_before) & F.col(KEY).isNotNull())

    def _stored(
        self, part: str, like: DataFrame, watermarks: Mapping[Side, int], folders: list[Folder] | None = None
    ) -> DataFrame | None:
        """What was kept before this batch, without what was over by then."""
        chosen = self._before.folders(part) if folders is None else folders
        if not chosen:
            return None
        stored = like.sparkSession.read.schema(like.schema).parquet(*self._state.paths(chosen))
        return stored.where(~is_over(self._interval, watermarks))

    def _keep(self, part: str, fresh: DataFrame, number: int) -> list[Folder]:
        """The folders after this batch: what is new in one of its own, with small ones merged into it."""
        alive = [folder for folder in self._before.folders(part) if self._is_alive(folder)]
        merged = small_ones(alive)
        if not number and not merged:
            return alive
        kept = fresh.where(~is_over(self._interval, self._watermarks))
        stored = self._stored(part, fresh, self._watermarks, merged)
        if stored is not None:
            kept = kept.unionByName(stored)
        path = self._state.folder(self._batch, self._attempt, part)
        kept.write.parquet(str(path))
        # None of its rows is later than the latest that its side has had.
        latest_ms = {side: ms + self._interval.watermark_ms for side, ms in self._sides_ms.items()}
        rows = number + sum(folder.rows for folder in merged)
        one = Folder(name=path.name, rows=rows, sides_ms=latest_ms)
        return [*(folder for folder in alive if folder not in merged), one]

    def _is_alive(self, folder: Folder) -> bool:
        """Whether it may hold a row that is not over."""
        for side in SIDES:
            other: Side = "right" if side == "left" else "left"
            latest_ms = folder.sides_ms.get(side)
            if latest_ms is None:
                continue
            ended_ms = self._watermarks.get(other)
            if ended_ms is None or latest_ms + self._interval.reach_ms(side) >= ended_ms:
                return True
        return False
