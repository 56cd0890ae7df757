"""Answers of many partitions as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Gather(Generic[T]):
    """The answers in the order in which they were asked, when the last one has come."""

    def __init__(self, count: int, finish: Callable[[list[T]], None]) -> None:
        self._answers: list[Any] = [None] * count
        self._missing = count
        self._finish = finish
        if count == 0:
            finish([])

    def slot(self, index: int) -> Callable[[T], None]:
        def fill(answer: T) -> None:
            self._answers[index] = answer
            self._missing -= 1
            if self._missing == 0:
                self._finish(self._answers)

        return fill
