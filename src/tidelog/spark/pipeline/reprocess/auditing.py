"""Whether a shadow may take the place of the live tables: its audit, as `check` makes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.spark.pipeline.checking import check
from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.reprocess.since import ReprocessError
from tidelog.spark.pipeline.sinks import table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[str], None]


def audit_shadow(shadow: Pipeline, name: str, spark: SparkSession, tell: Tell, *, unproved: bool) -> None:
    """ReprocessError when it does not balance, or when nothing can be proved and that is not enough."""
    for _, finding in check(shadow, [name], tell, spark=spark):
        if finding.verdict == "off":
            raise ReprocessError(f"what was rebuilt does not balance; nothing was changed\n{finding.table()}")
        if finding.verdict == "unknown" and not unproved:
            raise ReprocessError(
                f"nothing was changed: what was rebuilt cannot be proved; --unproved swaps it in all the same\n"
                f"{finding.table()}"
            )
        tell(f"audit: {finding.summary()}")


def check_no_less(pipeline: Pipeline, shadow: Pipeline, name: str) -> None:
    """Of an ingest flow every row is of a record: fewer of them are records that the cleaner has taken since."""
    flow, built = pipeline.flows[name], shadow.flows[name]
    if isinstance(flow, Ingest):
        live, rows = table_of(flow.table).count(), table_of(built.table).count()
        if rows < live:
            raise ReprocessError(
                f"the log gives {rows} rows and the table has {live}: compaction, say, has taken records that were "
                "landed before; nothing was changed"
            )
