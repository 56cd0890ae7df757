"""The rules of a state machine of hypothesis, walked at random. Hypothesis shortens what it finds, but it is slow: this
finds more in a second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, TypeVar

M = TypeVar("M")


def no_arguments(random: Random) -> dict[str, Any]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Walk(Generic[M]):
    model: Callable[[], M]
    rules: Mapping[str, Callable[[Random], dict[str, Any]]]
    """Names and how their arguments are drawn."""
    weights: Mapping[str, float]
    """How often a rule is taken, 1 where it is not named."""
    possible: Mapping[str, Callable[[M], object]]
    """What the preconditions of the rules say."""
    look: Callable[[M], None]
    """The invariants, after each step."""
    steps: int

    def take(self, seed: int) -> None:
        random = Random(seed)
        model: Any = self.model()
        model.start(seed=random.randrange(2**16))
        weights = [self.weights.get(name, 1) for name in self.rules]
        for name in random.choices(list(self.rules), weights, k=self.steps):
            arguments = self.rules[name](random)
            if name not in self.possible or self.possible[name](model):
                getattr(model, name)(**arguments)
                self.look(model)

    def take_each(self, seeds: range) -> None:
        for seed in seeds:
            try:
                self.take(seed)
            except Exception as error:
                error.add_note(f"walk {seed}, of {self.steps} steps")
                raise
