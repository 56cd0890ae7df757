"""How far a query is behind the log, in the words of Spark's Kafka source, and how many bytes an offset has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from tidelog.client.errors import ClientError
from tidelog.kernel.ports import Clock
from tidelog.spark.link import At
from tidelog.spark.source.view import View

_YOUNG_S: Final = 60.0


class Sizes:
    """The average bytes of an offset, by partition, from its size on disk; asked again after a minute."""

    def __init__(self, view: View, clock: Clock) -> None:
        self.per_offset: dict[At, float] = {}
        self._view = view
        self._clock = clock
        self._asked_s: float | None = None

    def ask(self, partitions: Collection[At]) -> Mapping[At, float]:
        """Empty when brokers do not tell: then only maxOffsetsPerTrigger is a bound."""
        now_s = self._clock.monotonic_s()
        stale = self._asked_s is None or now_s - self._asked_s > _YOUNG_S
        if stale:
            self._asked_s = now_s
            self.per_offset = self._measure(partitions)
        return self.per_offset

    def _measure(self, partitions: Collection[At]) -> dict[At, float]:
        try:
            sizes = self._view.link.sizes(partitions)
            earliest, latest = self._view.earliest(partitions), self._view.latest(partitions)
        except ClientError:  # not allowed, too old a broker, or a topic that is gone: it is only an estimate
            return {}
        return {at: max(1.0, size / max(1, latest[at] - earliest[at])) for at, size in sizes.items()}


def behind(latest: Mapping[At, int], planned: Mapping[At, int], per_offset: Mapping[At, float]) -> dict[str, Any]:
    """Texts, as Spark's own metrics are. The bytes are left out where sizes are not known."""
    lags = {at: max(0, end - planned.get(at, end)) for at, end in latest.items()}
    if not lags:
        return {}
    found = {
        "minOffsetsBehindLatest": str(min(lags.values())),
        "maxOffsetsBehindLatest": str(max(lags.values())),
        "avgOffsetsBehindLatest": str(sum(lags.values()) / len(lags)),
    }
    if lags.keys() <= per_offset.keys():
        total = sum(lag * per_offset[at] for at, lag in lags.items())
        found["estimatedTotalBytesBehindLatest"] = str(round(total))
    return found
