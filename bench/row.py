"""What a row of the bench is: who is measured at which points, how, and what is to be reached.

Knows neither brokers nor clients; the rows themselves stand in rows_*.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from bench.lab import Lab

Figures = dict[str, float]
Client = Literal["generator", "java or generator", "java", "plain sockets"]
"""Who drives a row. `java or generator`: Java's client where it is, ready-made batches elsewhere."""


class Side(NamedTuple):
    """A column: its label, and the node that is asked."""

    label: str
    node: str


TIDELOG = Side("tidelog", "tidelog")
SYNCED = Side("tidelog", "synced")
APACHE = Side("apache", "apache")
BOTH = (TIDELOG, APACHE)


class Target(NamedTuple):
    """One figure divided by another, and what the ratio should be. No bound means: reported, with an aim."""

    metric: str
    bound: float | None
    aim: float | None = None
    higher_is_better: bool = False
    point: str = ""
    of: str = "tidelog"
    over: str = "apache"
    over_point: str | None = None
    """Where the other figure is taken, when not at the same point."""


def at_least(metric: str, bound: float | None, aim: float | None = None, **more: Any) -> Target:
    return Target(metric, bound, aim, True, **more)


def at_most(metric: str, bound: float | None, aim: float | None = None, **more: Any) -> Target:
    return Target(metric, bound, aim, False, **more)


@dataclass
class Run:
    """One measurement: of a side, at a point, as large as the settings say (a warm-up is smaller)."""

    lab: Lab
    side: Side
    point: str
    bytes: int
    seconds: float
    kept: dict[str, Any] = field(default_factory=dict)
    """What `prepare` left for the runs of this side and point."""


@dataclass(frozen=True, kw_only=True)
class Row:
    name: str
    title: str
    measure: Callable[[Run], Figures]
    shows: tuple[str, ...]
    """The figures of the table, the most telling one first."""
    sides: tuple[Side, ...] = BOTH
    points: tuple[str, ...] = ("",)
    point_is: str = ""
    targets: tuple[Target, ...] = ()
    prepare: Callable[[Run], None] | None = None
    finish: Callable[[Run], None] | None = None
    client: Client = "generator"
    by_seconds: bool = False
    """A run lasts as long as the settings say, shared among the points; otherwise it ends with its bytes."""
    seconds_per_gb: float = 8.0
    """A guess, for the estimate that is printed first."""
    overhead_s: float = 1.5
    warm_ups_max: int = 9
    runs_max: int = 99
    share: float = 1.0
    """Of the bytes or seconds that the settings give a run: our own curves need less than a comparison."""


def key_of(side: str, point: str) -> str:
    return f"{side} @ {point}" if point else side
