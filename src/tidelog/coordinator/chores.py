"""Long computations of a coordinator, a slice in each turn of the loop.

Such work is a generator: each step says what it has cost. What a turn may cost is one sum for all of them, so neither a
group of thousands nor many such groups at once keep the loop from its sockets. Costs are counted and not timed, so a
simulation goes the same way each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")
Work: TypeAlias = Generator[int, None, T]
"""Each step gives its cost, in units of about a microsecond; a step is to be short, some hundreds of them."""
UNITS_A_TURN: Final = 10_000


class Chores:
    def __init__(self, when_more: Callable[[], None] = lambda: None) -> None:
        self._queue: deque[Work[Any]] = deque()
        self._when_more = when_more
        self._left = UNITS_A_TURN

    @property
    def is_behind(self) -> bool:
        """Somebody waits for another turn, or this one is used: whoever drives the coordinator is to come again."""
        return bool(self._queue) or self._left < UNITS_A_TURN

    def begin(self, work: Work[Any]) -> None:
        """Done at once as far as this turn has room for it: most work is short. The rest follows turn by turn, the
        others having theirs in between."""
        self._queue.append(work)
        if len(self._queue) == 1:
            self._run()
        self._when_more()

    def next_turn(self) -> None:
        self._left = UNITS_A_TURN

    def go_on(self) -> bool:
        """With what this turn has left; whether there was anything to do."""
        was_needed = bool(self._queue)
        self._run()
        return was_needed

    def _run(self) -> None:
        queue = self._queue
        while queue and self._left > 0:
            for cost in queue[0]:
                self._left -= cost
                if self._left <= 0:
                    queue.rotate(-1)
                    break
            else:
                queue.popleft()


def finish(work: Work[T]) -> T:
    """All of it now."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
