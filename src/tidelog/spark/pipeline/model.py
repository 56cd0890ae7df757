"""A pipeline that was read and found right: frozen values, with every default filled in.

They are made by `load`, or by `Pipeline.of` in Python; both go through the same checks (see read.py), so nothing
further down asks again whether a name exists or a duration is positive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Format = Literal["delta", "parquet", "iceberg"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    every_ms: int = 10_000
    once: bool = False  # all that is there now, then the flow ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """When a table's small files are merged and its orphans removed: whichever comes first; 0 is never."""

    batches: int = 100
    every_ms: int = 0
    target_bytes: int = 128 << 20
    orphans_ms: int = 7 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    first_ms: int = 1_000
    most_ms: int = 60_000
    give_up_after: int = 10  # failures in a row without a finished batch between them


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    path: str  # a directory that driver and executors see
    format: Format = "delta"
    partition_by: tuple[str, ...] = ("event_date",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What flows of every kind have; what one of them has more stands with its kind (kinds/)."""

    name: str
    table: Table  # where its table lies, or would: what it really writes to is in `tables`
    trigger: Trigger
    maintenance: Maintenance
    restart: Restart

    @property
    def inputs(self) -> tuple[str, ...]:
        """The flows whose streams it reads."""
        return ()

    @property
    def inputs_in_order(self) -> bool:
        """Whether its plan has each of its inputs once, in their order; a query of a user's may have them anyhow."""
        return len(self.inputs) < 2

    def input_key(self, name: str) -> str:
        """Which key of the file names that input."""
        return "from"

    @property
    def looked_up(self) -> tuple[str, ...]:
        """The flows whose tables it reads, as they are at each batch."""
        return ()

    @property
    def aside(self) -> Mapping[str, Table]:
        """Tables beside its own, by what is in them: late, duplicates, unmatched."""
        return {}

    @property
    def tables(self) -> tuple[Table, ...]:
        """All that it writes to, its own first; none of a flow whose rows go to a topic."""
        return (self.table, *self.aside.values())

    @property
    def topics_written(self) -> tuple[str, ...]:
        return ()

    @property
    def unreadable(self) -> str | None:
        """Why other flows cannot read it; None when they can."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Where producers and consumers publish what they count, for `check`."""

    topic: str = "tidelog-audit"
    window_ms: int = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    name: str
    bootstrap_servers: str
    work: Path  # checkpoints and the state of a run
    flows: Mapping[str, Flow]  # in an order in which a flow stands after those it reads
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    spark: Mapping[str, str] = field(default_factory=dict)
    audit: Audit | None = None
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict, repr=False, compare=False)
    source: str = "the pipeline"

    @staticmethod
    def of(**options: object) -> Pipeline:
        """The same as a file, in Python: the keys of the file as keyword arguments (`bootstrap_servers` for
        `bootstrap.servers`), flows as a dictionary of `ingest(...)`, `sql(...)` and so on, a function for each kind."""
        from tidelog.spark.pipeline.python import pipeline_of

        return pipeline_of(options)
