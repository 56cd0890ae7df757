"""From values to places, and where the ticks of an axis are. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelog.spark.pipeline.report import figures

_S, _M, _H, _D = 1000, 60_000, 3_600_000, 86_400_000
TIME_STEPS_MS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(_S, 2 * _S, 5 * _S, 10 * _S, 15 * _S, 30 * _S),
    *(_M, 2 * _M, 5 * _M, 10 * _M, 15 * _M, 30 * _M),
    *(_H, 2 * _H, 3 * _H, 6 * _H, 12 * _H),
    *(_D, 2 * _D, 7 * _D, 14 * _D, 28 * _D, 91 * _D, 182 * _D, 364 * _D),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Linear; of a single value, the middle."""

    low: float
    high: float
    first: float
    last: float

    def __call__(self, value: float) -> float:
        if self.high <= self.low:
            return (self.first + self.last) / 2
        return self.first + (value - self.low) / (self.high - self.low) * (self.last - self.first)


@dataclass(frozen=True, slots=True)
class Axis:
    low: float
    high: float
    ticks: list[tuple[float, str]]


def number_axis(most: float, wanted: int = 4, *, whole: bool = False) -> Axis:
    """From 0 to the first tick that is not below `most`."""
    step = _number_step(most, wanted)
    return _from_zero(most, max(1.0, step) if whole else step, figures.short)


def span_axis(most_ms: float, wanted: int = 4) -> Axis:
    return _from_zero(most_ms, _time_step(most_ms, wanted) if most_ms > 0 else _S, figures.span)


def time_axis(low_ms: int, high_ms: int, wanted: int = 6) -> Axis:
    """As wide as the values; ticks at round times."""
    step = _time_step(max(1, high_ms - low_ms), wanted)
    form = "%Y-%m-%d" if step >= _D else "%H:%M" if step >= _M else "%H:%M:%S"
    if _M <= step < _D and high_ms - low_ms > _D:
        form = "%d %b %H:%M"
    first = -(-low_ms // step) * step
    ticks = [(float(at), figures.moment(at, form)) for at in range(first, high_ms + 1, step)]
    return Axis(low_ms, high_ms, ticks)


def _from_zero(most: float, step: float, name: Callable[[float], str]) -> Axis:
    number = max(1, math.ceil(most / step - 1e-9))
    return Axis(0.0, step * number, [(step * n, name(step * n) if n else "0") for n in range(number + 1)])


def _number_step(most: float, wanted: int) -> float:
    """1, 2 or 5 times a power of ten."""
    if not 1e-9 < most < math.inf:
        return 1.0
    rough = most / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * n for n in (1, 2, 5, 10) if rough <= power * n * (1 + 1e-9))


def _time_step(length_ms: float, wanted: int) -> int:
    found = next((step for step in TIME_STEPS_MS if length_ms / step <= wanted), None)
    if found is not None:
        return found
    years = TIME_STEPS_MS[-1]
    return years * math.ceil(length_ms / wanted / years)
