"""How changes become a view's rows, in two steps: changes and the state before into the state after, that into rows.

Both are given the changes of whole keys: what they are given together, in a batch or since the beginning, makes no
difference to what comes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.spark.pipeline.kinds.view import View
from tidelog.spark.pipeline.views.folding import Folding
from tidelog.spark.pipeline.views.latest import LastChange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Steps(Protocol):
    def state(self, changes: DataFrame, before: DataFrame | None, newest_ms: int | None = None) -> DataFrame: ...

    def rows(self, state: DataFrame, changes: DataFrame, before: DataFrame | None) -> DataFrame:
        """before: the rows that the table had of these keys."""


def steps_of(flow: View) -> Steps:
    return Folding(flow) if flow.fold else LastChange(flow)


def view_of(flow: View, changes: DataFrame) -> DataFrame:
    """The view that all changes since the beginning come to; one that is there twice counts once."""
    steps = steps_of(flow)
    once = changes.dropDuplicates(["topic", "partition", "offset"])
    return steps.rows(steps.state(once, None), once, None)
